#pragma once
// Catalogue: devices and models by name. What is built in comes from data/*.yaml; a user's YAML of
// the same form adds to it, or takes the place of an entry of the same name.
//
//   ASSIGN_OR_RETURN(Catalogue catalogue, BuiltInCatalogue());  // a test holds that it reads
//   RETURN_IF_ERROR(catalogue.Add(text, "mine.yaml"));
//   ASSIGN_OR_RETURN(const ModelFacts* model, catalogue.FindModel("llama-3.1-70b"));
//
// Names are found in any case of letters, with or without spaces, dashes and underscores.
// A value; any thread. Fails: kInvalidArgument (file, line, column and field), kNotFound (the
// nearest names that are known).

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/device_facts.h"
#include "plan/model_facts.h"

namespace cleave {

class Catalogue {
 public:
  // The largest file that is read.
  static constexpr size_t kMaxBytes = size_t{4} << 20U;

  Status Add(std::string_view yaml, std::string_view file_name);
  [[nodiscard]] Result<const DeviceFacts*> FindDevice(std::string_view name) const;
  [[nodiscard]] Result<const ModelFacts*> FindModel(std::string_view name) const;
  [[nodiscard]] const std::vector<DeviceFacts>& devices() const { return devices_; }
  [[nodiscard]] const std::vector<ModelFacts>& models() const { return models_; }

 private:
  std::vector<DeviceFacts> devices_;
  std::vector<ModelFacts> models_;
};

Result<Catalogue> BuiltInCatalogue();

}  // namespace cleave
