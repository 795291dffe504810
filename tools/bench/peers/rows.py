"""What is compared, and the bars: a row for each file and peer, a cell for each of its metrics."""

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class Ceiling:
    """What a figure is held against, as `cleave bench engine` measures it beside each run."""

    key: str  # of its answer
    rate: str  # in its list of cores
    unit: str  # of 1e9 of them


BANDWIDTH = Ceiling("probe", "bytes_per_s", "GB/s")
PEAK = Ceiling("peak", "ops_per_s", "Gop/s")


@dataclasses.dataclass(frozen=True)
class Metric:
    key: str
    title: str
    rate: str  # in runs[] of `cleave bench engine`
    ceiling: Ceiling
    share: str  # of the ceiling, in runs[].bounds
    limit_bar: float


METRICS = {
    metric.key: metric
    for metric in (
        Metric(
            "decode",
            "decode, batch 1",
            "decode_tokens_per_s",
            BANDWIDTH,
            "decode_of_bandwidth",
            0.75,
        ),
        Metric("prefill", "prefill 512", "prefill_tokens_per_s", PEAK, "prefill_of_peak", 0.5),
        Metric("batch32", "decode, batch 32", "decode_tokens_per_s", PEAK, "decode_of_peak", 0.35),
    )
}


@dataclasses.dataclass(frozen=True)
class Sizes:
    prompt: int
    output: int
    batch: int
    repeats: int  # inside of one run of a program, which takes their median


@dataclasses.dataclass(frozen=True)
class Row:
    model: str
    type: str
    peer: str
    bars: dict = dataclasses.field(hash=False)  # metric's key -> the least ratio
    is_large: bool = False  # takes seconds where the other takes tenths

    @property
    def file(self):
        return f"{self.model}.{self.type}.gguf"


@dataclasses.dataclass(frozen=True)
class Cell:
    row: Row
    metric: Metric

    @property
    def bar(self):
        return self.row.bars[self.metric.key]

    @property
    def name(self):
        return f"{self.row.model} {self.row.type} {self.row.peer} {self.metric.key}"

    def sizes(self, repeats):
        """Those that count: a run of the large model is long enough alone."""
        repeats = 1 if self.row.is_large else repeats
        return {
            "decode": Sizes(1, 128, 1, repeats),
            "prefill": Sizes(512, 1, 1, repeats),
            "batch32": Sizes(128, 64, 32, 1),
        }[self.metric.key]

    def look_sizes(self, repeats):
        """Those that choose a configuration: less where the real ones take minutes."""
        if self.metric.key == "batch32":
            return Sizes(32, 16, 32, 1)
        if not self.row.is_large:
            return self.sizes(repeats)
        return Sizes(1, 32, 1, 1) if self.metric.key == "decode" else Sizes(256, 1, 1, 1)

    @property
    def timeout_s(self):
        """Of one run; an order of magnitude above what the slowest configuration takes."""
        return 3600 if self.row.is_large else 600


LLAMA, IK = "llama.cpp", "ik_llama.cpp"
SMALL, LARGE = "SmolLM2-135M-Instruct", "Llama-3.2-1B-shape"


def _bars(decode, prefill, batch32=None):
    bars = {"decode": decode, "prefill": prefill}
    return bars if batch32 is None else bars | {"batch32": batch32}


ROWS = (
    Row(SMALL, "Q4_1", LLAMA, _bars(4.5, 6, 7)),
    Row(SMALL, "Q8_0", LLAMA, _bars(2.8, 3.5, 4)),
    Row(SMALL, "Q4_0", LLAMA, _bars(3.3, 2.4, 3)),
    Row(SMALL, "BF16", LLAMA, _bars(2.2, 1.8, 3)),
    Row(LARGE, "Q4_1", LLAMA, _bars(2.4, 6, 7), is_large=True),
    Row(LARGE, "Q8_0", LLAMA, _bars(1.5, 3, 4), is_large=True),
    Row(LARGE, "Q4_K_M", LLAMA, _bars(2, 3, 4), is_large=True),
    Row(SMALL, "Q4_1", IK, _bars(3, 1.2)),
    Row(SMALL, "Q8_0", IK, _bars(1.8, 1.3)),
    Row(SMALL, "BF16", IK, _bars(1.6, 1.3)),
)


# Of a bar, where neither side may use AVX-512.
WITHOUT_AVX512 = {"decode": 0.8, "prefill": 0.5, "batch32": 0.5}


def _without_avx512(row):
    bars = {key: bar * WITHOUT_AVX512[key] for key, bar in row.bars.items()}
    return dataclasses.replace(row, bars=bars)


def cells(pattern=None, with_avx512=True):
    """All, or those whose name the compiled `pattern` finds. Without AVX-512: beside llama.cpp."""
    rows = ROWS if with_avx512 else [_without_avx512(row) for row in ROWS if row.peer == LLAMA]
    found = [Cell(row, METRICS[key]) for row in rows for key in row.bars]
    return [cell for cell in found if pattern is None or pattern.search(cell.name)]


def model_path(row, models, peers):
    """The demo models are the checkout's, what is made for this comparison is the peers'."""
    return os.path.join(peers if row.model == LARGE else models, row.file)
