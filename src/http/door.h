#pragma once
// The checks every request passes before its route: key, origin, ids. Pure; any thread.

#include <string>
#include <string_view>
#include <vector>

#include "http/server.h"

namespace cleave {

// Whether the request carries one of the keys as "Authorization: Bearer KEY". The time taken does
// not depend on where a wrong key differs.
bool HasKey(const http::Request& request, const std::vector<std::string>& keys);

// CORS headers for an allowed Origin; none otherwise.
std::vector<http::Header> OriginHeaders(const http::Request& request,
                                        const std::vector<std::string>& allowed);

// The client's X-Request-Id when it is fit to be echoed and logged: 1 to 128 printable ASCII
// characters without spaces; else "".
std::string ClientRequestId(const http::Request& request);

// Random: 32 hexadecimal digits, and 64 bits. From the system's generator.
std::string NewRequestId();
uint64_t NewSeed();

}  // namespace cleave
