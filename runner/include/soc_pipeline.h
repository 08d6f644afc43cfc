/* Streams frames through a bundle of soc-pipeline, without Python.  docs/runner.md explains it.
 *
 * Any thread may call any function, but for soc_close, which must be the last call of all.  A function that returns
 * SOC_ERROR leaves a message in soc_error. */
#ifndef SOC_PIPELINE_H_
#define SOC_PIPELINE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOC_EXPORT __attribute__((visibility("default")))

typedef struct soc_pipeline soc_pipeline;

typedef enum {
  SOC_OK = 0,
  SOC_FAILED = 1,  /* the frame failed in a stage, or its end would be no result */
  SOC_END = 2,     /* no frame will come any more */
  SOC_TIMEOUT = 3, /* nothing happened in time */
  SOC_ERROR = 4    /* wrong use, or a bundle that cannot be run: see soc_error */
} soc_status;

typedef enum {
  SOC_BLOCK = 0, /* whoever submits waits for room */
  SOC_LATEST = 1 /* nobody waits: the newest frame takes the place of one that has not started */
} soc_admission;

typedef struct {
  soc_admission admission;
  uint32_t in_flight; /* frames inside at once; 0 takes the plan's */
} soc_options;

typedef struct {
  const char *name, *dtype; /* dtype as NumPy calls it */
  const int64_t *shape;
  size_t axes, nbytes;
  const void *data; /* NULL in a description */
} soc_tensor;

typedef struct {
  uint64_t frame;             /* its number, counted from 0 in the order of submission */
  const char *stage, *reason; /* of a frame that failed */
  const soc_tensor *outputs;  /* of a frame that did not, as soc_outputs describes them */
  void *place;                /* what soc_release gives back */
} soc_result;

/* submitted == delivered + dropped + failed + cancelled + in_flight, in every snapshot */
typedef struct {
  uint64_t submitted, delivered, dropped, failed, cancelled, in_flight;
  double elapsed_s; /* from the first submission to the newest end */
} soc_statistics;

typedef struct {
  const char *name, *device;
  uint64_t frames_in, frames_out, failed, skipped;
  double busy_s; /* of all replicas together */
  uint32_t replicas, queue_length;
} soc_stage_statistics;

/* Verifies and loads the bundle in a folder, and starts its stages; NULL if that cannot be.  No options: the defaults. */
SOC_EXPORT soc_pipeline *soc_open(const char *folder, const soc_options *options);

/* Message of this thread's last error; valid until its next one. */
SOC_EXPORT const char *soc_error(void);

/* Descriptions, valid until soc_close. */
SOC_EXPORT const soc_tensor *soc_inputs(const soc_pipeline *pipeline, size_t *count);
SOC_EXPORT const soc_tensor *soc_outputs(const soc_pipeline *pipeline, size_t *count);

/* Copies one frame in: nbytes and data of each input, in order; name, dtype and shape are compared unless NULL.
 * Waits at most so many seconds for room, below 0 for ever.  Its number goes to *frame unless that is NULL. */
SOC_EXPORT soc_status soc_submit(soc_pipeline *pipeline, const soc_tensor *inputs, size_t count, double timeout_s,
                                 uint64_t *frame);

/* Waits for the next frame, in the order of submission; dropped and cancelled ones are left out.  What is in the result
 * stays valid, and holds its place in the pipeline, until soc_release. */
SOC_EXPORT soc_status soc_next(soc_pipeline *pipeline, soc_result *result, double timeout_s);
SOC_EXPORT void soc_release(soc_pipeline *pipeline, soc_result *result);

/* Gives a frame up that has not been through all stages; returns 1 if it was still there, else 0. */
SOC_EXPORT int soc_cancel(soc_pipeline *pipeline, uint64_t frame);

/* Says that no more frames come: soc_next returns SOC_END once it has returned all others. */
SOC_EXPORT void soc_finish(soc_pipeline *pipeline);

SOC_EXPORT void soc_get_statistics(soc_pipeline *pipeline, soc_statistics *statistics);
SOC_EXPORT soc_status soc_get_stage_statistics(soc_pipeline *pipeline, size_t stage, soc_stage_statistics *statistics);

/* Cancels the frames that soc_next has not returned, ends all threads, writes the last statistics unless NULL. */
SOC_EXPORT void soc_close(soc_pipeline *pipeline, soc_statistics *statistics);

#ifdef __cplusplus
}
#endif
#endif /* SOC_PIPELINE_H_ */
