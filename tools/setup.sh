#!/usr/bin/env bash
# Installs what building (and testing) needs from Debian's packages; what is there is left alone.
# usage: tools/setup.sh build|test
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config libboost1.81-dev libssl-dev nlohmann-json3-dev
       libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev libicu-dev libyaml-cpp-dev libhwloc-dev
       libxxhash-dev prometheus-cpp-dev ca-certificates python3 python3-pip python3-venv)
test=(libgtest-dev libgmock-dev libbenchmark-dev clang-format clang-tidy universal-ctags
      python3-numpy python3-jinja2)

case ${1:-} in
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${test[@]}") ;;
  *) echo "usage: tools/setup.sh build|test" >&2; exit 2 ;;
esac

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing+=("$package")
done
[ ${#missing[@]} = 0 ] && exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null ||
    { echo "setup: as root, run: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
