#pragma once
// EngineClient under the name the API has known it by.

#include "engine/engine_client.h"  // IWYU pragma: export
