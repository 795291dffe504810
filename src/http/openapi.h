#pragma once
// The OpenAPI 3.1 document of the API. Pure; any thread.

#include <string>
#include <string_view>

namespace cleave {

std::string OpenApiDocument(std::string_view version);

}  // namespace cleave
