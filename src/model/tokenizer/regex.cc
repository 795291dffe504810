#include "model/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <optional>

#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr size_t kJitStackStart = 32 << 10;
constexpr size_t kJitStackMost = 1 << 20;
// The known patterns need a few steps a match; these stop a pattern that backtracks without end.
constexpr uint32_t kMatchSteps = 10'000'000;
constexpr uint32_t kMatchHeapKib = 64 << 10;

template <auto kFree>
struct FreeWith {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, FreeWith<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeWith<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeWith<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, FreeWith<pcre2_jit_stack_free>>;
using CodePtr = std::unique_ptr<pcre2_code, FreeWith<pcre2_code_free>>;

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof(text)) < 0) return fmt::format("error {}", code);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct RegexScratch::State {
  MatchData data{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)};

  State() {
    if (context == nullptr) return;
    pcre2_set_match_limit(context.get(), kMatchSteps);
    pcre2_set_heap_limit(context.get(), kMatchHeapKib);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

RegexScratch::RegexScratch() = default;
RegexScratch::~RegexScratch() = default;

struct Regex::Code {
  CodePtr code;
  bool jit = false;

  // One match at or behind `from`; nothing when there is none or the limits are exceeded.
  [[nodiscard]] std::optional<Span> Match(std::string_view subject, size_t from,
                                          RegexScratch::State* state) const {
    const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (jit) {
      rc = pcre2_jit_match(code.get(), text, subject.size(), from, 0, state->data.get(),
                           state->context.get());
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code.get(), text, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       state->data.get(), state->context.get());
    }
    if (rc < 0) return std::nullopt;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state->data.get());
    return Span{ends[0], ends[1]};
  }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::CompileWith(std::string_view pattern, std::string_view shown,
                                 unsigned options) {
  CompileContext context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) return ResourceExhausted("no memory for a pattern");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context.get(), kMaxPatternBytes);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | options, &error, &offset, context.get()));
  if (code->code == nullptr) {
    return Unsupported(fmt::format("pattern \"{:.200}\" can not be used: {} at byte {}", shown,
                                   ErrorText(error), offset));
  }
  code->jit = pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(code));
}

Result<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.empty()) return Unsupported("an empty pattern can not split text");
  if (pattern.size() > kMaxPatternBytes) {
    return Unsupported(
        fmt::format("a pattern of {} bytes is longer than {}", pattern.size(), kMaxPatternBytes));
  }
  ASSIGN_OR_RETURN(const std::string translated, PatternForPcre2(pattern));
  return CompileWith(translated, pattern, PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
}

Result<Regex> Regex::Literal(std::string_view text) {
  if (text.empty()) return Unsupported("an empty pattern can not split text");
  return CompileWith(text, text, PCRE2_LITERAL);
}

// Empty matches are taken once per position, and not where the match before ended.
void Regex::FindAll(std::string_view subject, RegexScratch* scratch,
                    std::vector<Span>* matches) const {
  if (scratch->state_ == nullptr) scratch->state_ = std::make_unique<RegexScratch::State>();
  RegexScratch::State* state = scratch->state_.get();
  if (state->data == nullptr || state->context == nullptr) return;
  size_t from = 0;
  std::optional<size_t> last_end;
  while (from <= subject.size()) {
    const std::optional<Span> match = code_->Match(subject, from, state);
    if (!match || match->end < match->begin) return;
    from = match->end;
    const bool empty = match->begin == match->end;
    if (empty) from += from < subject.size() ? CharSize(subject[from]) : 1;
    if (empty && last_end == match->end) continue;
    last_end = match->end;
    matches->push_back(*match);
  }
}

}  // namespace cleave::tok
