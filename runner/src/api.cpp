// The functions of soc_pipeline.h: no exception leaves them.
#include "pipeline.h"

struct soc_pipeline : soc::Pipeline {
  using Pipeline::Pipeline;
};

namespace {

thread_local std::string last_error;

template <typename Call, typename Value>
Value guard(Call call, Value otherwise) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    last_error = "there is not enough memory";
  } catch (const std::exception& error) {
    last_error = error.what();
  }
  return otherwise;
}

const soc_tensor* list(const std::vector<soc_tensor>& tensors, size_t* count) { return *count = tensors.size(), tensors.data(); }

}  // namespace

soc_pipeline* soc_open(const char* folder, const soc_options* options) {
  return guard([&] { return new soc_pipeline(folder, options ? *options : soc_options{}); }, (soc_pipeline*)nullptr);
}

const char* soc_error(void) { return last_error.c_str(); }

const soc_tensor* soc_inputs(const soc_pipeline* pipeline, size_t* count) { return list(pipeline->inputs(), count); }

const soc_tensor* soc_outputs(const soc_pipeline* pipeline, size_t* count) { return list(pipeline->outputs(), count); }

soc_status soc_submit(soc_pipeline* pipeline, const soc_tensor* inputs, size_t count, double timeout_s, uint64_t* frame) {
  return guard([&] { return pipeline->submit(inputs, count, timeout_s, frame); }, SOC_ERROR);
}

soc_status soc_next(soc_pipeline* pipeline, soc_result* result, double timeout_s) {
  return guard([&] { return pipeline->next(result, timeout_s); }, SOC_ERROR);
}

void soc_release(soc_pipeline* pipeline, soc_result* result) {
  // Twice does no harm.
  if (auto* frame = static_cast<soc::Frame*>(std::exchange(result->place, nullptr))) pipeline->release(frame);
}

int soc_cancel(soc_pipeline* pipeline, uint64_t frame) { return pipeline->cancel(frame) ? 1 : 0; }

void soc_finish(soc_pipeline* pipeline) { pipeline->finish(); }

void soc_get_statistics(soc_pipeline* pipeline, soc_statistics* statistics) { *statistics = pipeline->statistics(); }

soc_status soc_get_stage_statistics(soc_pipeline* pipeline, size_t stage, soc_stage_statistics* statistics) {
  return guard([&] { return *statistics = pipeline->stage_statistics(stage), SOC_OK; }, SOC_ERROR);
}

void soc_close(soc_pipeline* pipeline, soc_statistics* statistics) {
  if (pipeline == nullptr) return;
  pipeline->close();
  if (statistics != nullptr) *statistics = pipeline->statistics();
  delete pipeline;
}
