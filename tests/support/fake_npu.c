/* An external delegate of LiteRT that acts as an NPU: it takes CONV_2D and DEPTHWISE_CONV_2D, of float32 and of int8,
 * and leaves all other operators to the CPU.
 *
 * Options, each a kind of operator: the seconds that one takes.  The answer is there earlier; the rest of the time the
 * calling thread sleeps, so that the CPU is free, as beside a real accelerator.
 *
 * The declarations are those that a delegate needs of LiteRT's C interface, which is only extended at the ends of its
 * structures.  Nothing is linked.
 */
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

typedef int Status; /* 0 is success */

typedef struct {
  int size;
  int data[];
} IntArray;

typedef struct {
  int size;
  float data[];
} FloatArray;

typedef struct {
  FloatArray *scale;
  IntArray *zero_point;
  int32_t axis;
} Quantization;

enum { FLOAT32 = 1, INT32 = 2, INT8 = 9 };

typedef struct {
  int type;
  void *data;
  IntArray *dims;
  struct {
    float scale;
    int32_t zero_point;
  } params;
  int allocation_type;
  size_t bytes;
  const void *allocation;
  const char *name;
  void *delegate;
  int buffer_handle;
  bool data_is_stale;
  bool is_variable;
  struct {
    int type;
    void *params;
  } quantization;
  void *sparsity;
  const IntArray *dims_signature;
} Tensor;

typedef struct {
  IntArray *inputs, *outputs, *intermediates, *temporaries;
  void *user_data;
  void *builtin_data;
  const void *custom_data;
  int custom_data_size;
  struct Delegate *delegate;
  bool might_have_side_effect;
} Node;

typedef struct Context Context;

typedef struct {
  void *(*init)(Context *, const char *, size_t);
  void (*free)(Context *, void *);
  Status (*prepare)(Context *, Node *);
  Status (*invoke)(Context *, Node *);
  const char *(*profiling_string)(const Context *, const Node *);
  int32_t builtin_code;
  const char *custom_name;
  int version;
  void *external;
  void *(*async_kernel)(Context *, Node *);
  uint64_t inplace;
} Registration;

struct Context {
  size_t tensors_size;
  Status (*get_execution_plan)(Context *, IntArray **);
  Tensor *tensors;
  void *implementation;
  Status (*resize_tensor)(Context *, Tensor *, IntArray *);
  void (*report_error)(Context *, const char *, ...);
  Status (*add_tensors)(Context *, int, int *);
  Status (*get_node)(Context *, int, Node **, Registration **);
  Status (*replace_nodes)(Context *, Registration, const IntArray *, struct Delegate *);
  /* What follows is not used. */
};

typedef struct Delegate {
  void *data;
  Status (*prepare)(Context *, struct Delegate *);
  Status (*copy_from_buffer)(Context *, struct Delegate *, int, Tensor *);
  Status (*copy_to_buffer)(Context *, struct Delegate *, int, Tensor *);
  void (*free_buffer)(Context *, struct Delegate *, int *);
  int64_t flags;
  void *opaque_builder;
} Delegate;

typedef struct {
  Delegate *delegate;
  IntArray *nodes, *inputs, *outputs;
} DelegateParams;

typedef struct {
  int padding, stride_x, stride_y, activation, dilation_x, dilation_y, bias_type;
} ConvParams;

typedef struct {
  int padding, stride_x, stride_y, multiplier, activation, dilation_x, dilation_y;
} DepthwiseParams;

enum { CONV = 0, DEPTHWISE = 1, KINDS = 2 };
static const char *const KIND_NAMES[KINDS] = {"CONV_2D", "DEPTHWISE_CONV_2D"};
static const int CODES[KINDS] = {3, 4};
enum { SAME = 1 };
enum { NONE = 0, RELU = 1, RELU_N1_TO_1 = 2, RELU6 = 3 };

typedef struct {
  int kind, stride_x, stride_y, dilation_x, dilation_y, pad_x, pad_y, multiplier, activation;
  int input, filter, bias, output; /* bias is -1 where there is none */
  /* Of tensors that only this program knows, which LiteRT gives no memory; else NULL. */
  void *input_buffer, *output_buffer;
} Operator;

/* Run of operators that follow each other, as LiteRT has put them together. */
typedef struct {
  const double *seconds; /* of the delegate, by kind */
  int size;
  Operator operators[];
} Program;

static int find_kind(int code) {
  for (int kind = 0; kind < KINDS; kind++)
    if (CODES[kind] == code) return kind;
  return -1;
}

static int activation_of(int kind, const Node *node) {
  return kind == CONV ? ((ConvParams *)node->builtin_data)->activation
                      : ((DepthwiseParams *)node->builtin_data)->activation;
}

/* Whether this NPU takes an operator. */
static bool takes(const Context *context, const Node *node, const Registration *registration) {
  int kind = find_kind(registration->builtin_code);
  if (kind < 0 || node->inputs->size < 2 || activation_of(kind, node) > RELU6) return false;
  const Tensor *input = &context->tensors[node->inputs->data[0]], *filter = &context->tensors[node->inputs->data[1]];
  bool same = input->type == filter->type && input->type == context->tensors[node->outputs->data[0]].type;
  /* A convolution in groups has fewer channels in its filter than in its input. */
  bool whole = kind == DEPTHWISE || filter->dims->data[3] == input->dims->data[3];
  return same && whole && (input->type == FLOAT32 || input->type == INT8);
}

static int padding_before(int padding, int input, int output, int filter, int stride, int dilation) {
  int total = (output - 1) * stride + (filter - 1) * dilation + 1 - input;
  return padding == SAME && total > 0 ? total / 2 : 0;
}

static Operator read_operator(const Context *context, const Node *node, int kind) {
  Operator op = {.kind = kind, .multiplier = 1, .activation = activation_of(kind, node), .bias = -1};
  int padding;
  if (kind == CONV) {
    const ConvParams *params = node->builtin_data;
    padding = params->padding;
    op.stride_x = params->stride_x, op.stride_y = params->stride_y;
    op.dilation_x = params->dilation_x, op.dilation_y = params->dilation_y;
  } else {
    const DepthwiseParams *params = node->builtin_data;
    padding = params->padding;
    op.stride_x = params->stride_x, op.stride_y = params->stride_y;
    op.dilation_x = params->dilation_x, op.dilation_y = params->dilation_y;
  }
  op.input = node->inputs->data[0], op.filter = node->inputs->data[1], op.output = node->outputs->data[0];
  if (node->inputs->size > 2) op.bias = node->inputs->data[2];
  const int *input = context->tensors[op.input].dims->data, *filter = context->tensors[op.filter].dims->data;
  const int *output = context->tensors[op.output].dims->data;
  /* Not what the file says, which may be 0. */
  if (kind == DEPTHWISE) op.multiplier = output[3] / input[3];
  op.pad_y = padding_before(padding, input[1], output[1], filter[1], op.stride_y, op.dilation_y);
  op.pad_x = padding_before(padding, input[2], output[2], filter[2], op.stride_x, op.dilation_x);
  return op;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

/* To the microsecond, or the table's times would not be those that the device takes: Linux wakes a thread 50 us late
 * unless told not to, and a core that rests needs as long to begin. */
static void sleep_until(double end) {
  double wake = end - 60e-6;
  struct timespec time = {(time_t)wake, (long)((wake - floor(wake)) * 1e9)};
  int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL)) continue;
  prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
  while (now() < end) continue;
}

/* Sums of products, one per value of the output; `write` gets them with their channel. */
#define SUM(value_type, sum_type, zero)                                                                               \
  sum_type sum = 0;                                                                                                   \
  for (int row = 0; row < filter_dims[1]; row++)                                                                      \
    for (int column = 0; column < filter_dims[2]; column++) {                                                         \
      int in_y = y * op->stride_y - op->pad_y + row * op->dilation_y;                                                 \
      int in_x = x * op->stride_x - op->pad_x + column * op->dilation_x;                                              \
      if (in_y < 0 || in_y >= in_dims[1] || in_x < 0 || in_x >= in_dims[2]) continue;                                 \
      const value_type *values =                                                                                      \
          (const value_type *)values_in + ((size_t)(batch * in_dims[1] + in_y) * in_dims[2] + in_x) * in_dims[3];   \
      const value_type *weights = filter->data;                                                                       \
      if (op->kind == CONV) {                                                                                         \
        weights += ((size_t)(channel * filter_dims[1] + row) * filter_dims[2] + column) * in_dims[3];                 \
        for (int depth = 0; depth < in_dims[3]; depth++) sum += ((sum_type)values[depth] - (zero)) * weights[depth];  \
      } else {                                                                                                        \
        weights += ((size_t)row * filter_dims[2] + column) * filter_dims[3];                                          \
        sum += ((sum_type)values[channel / op->multiplier] - (zero)) * weights[channel];                              \
      }                                                                                                               \
    }

static float clamp(float value, int activation) {
  float low = activation == NONE ? -INFINITY : activation == RELU_N1_TO_1 ? -1 : 0;
  float high = activation == RELU6 ? 6 : activation == RELU_N1_TO_1 ? 1 : INFINITY;
  return value < low ? low : value > high ? high : value;
}

/* A scale as LiteRT's integer kernels have it: 31 bits and a shift. */
static int32_t scale_sum(int64_t sum, double scale) {
  int shift;
  int64_t factor = llround(frexp(scale, &shift) * 2147483648.0);
  if (factor == 1LL << 31) factor /= 2, shift++;
  int left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
  if (right > 31) return 0;
  int64_t product = (sum << left) * factor;
  int64_t high = (product + (product >= 0 ? 1LL << 30 : 1 - (1LL << 30))) / (1LL << 31);
  int64_t mask = (1LL << right) - 1, rest = high & mask;
  return (int32_t)((high >> right) + (rest > (mask >> 1) + (high < 0)));
}

static int8_t write_int8(const Context *context, const Operator *op, int32_t sum, int channel) {
  const Tensor *input = &context->tensors[op->input], *output = &context->tensors[op->output];
  const Quantization *weights = context->tensors[op->filter].quantization.params;
  float weight_scale = weights->scale->data[weights->scale->size > 1 ? channel : 0];
  if (op->bias >= 0) sum += ((const int32_t *)context->tensors[op->bias].data)[channel];
  double scale = (double)input->params.scale * weight_scale / (double)output->params.scale;
  int zero = output->params.zero_point;
  int value = scale_sum(sum, scale) + zero;
  int low = op->activation == NONE ? INT8_MIN : zero, high = INT8_MAX;
  if (op->activation == RELU_N1_TO_1) low = zero + (int)lroundf(-1 / output->params.scale);
  if (op->activation == RELU6) high = zero + (int)lroundf(6 / output->params.scale);
  if (op->activation == RELU_N1_TO_1) high = zero + (int)lroundf(1 / output->params.scale);
  low = low < INT8_MIN ? INT8_MIN : low, high = high > INT8_MAX ? INT8_MAX : high;
  return (int8_t)(value < low ? low : value > high ? high : value);
}

static void compute(const Context *context, const Operator *op) {
  const Tensor *input = &context->tensors[op->input], *filter = &context->tensors[op->filter];
  const Tensor *output = &context->tensors[op->output];
  const int *in_dims = input->dims->data, *filter_dims = filter->dims->data, *dims = output->dims->data;
  const float *bias = op->bias >= 0 ? context->tensors[op->bias].data : NULL;
  const void *values_in = op->input_buffer ? op->input_buffer : input->data;
  void *values_out = op->output_buffer ? op->output_buffer : output->data;
  size_t index = 0;
  for (int batch = 0; batch < dims[0]; batch++)
    for (int y = 0; y < dims[1]; y++)
      for (int x = 0; x < dims[2]; x++)
        for (int channel = 0; channel < dims[3]; channel++, index++) {
          if (output->type == FLOAT32) {
            SUM(float, float, 0)
            ((float *)values_out)[index] = clamp(sum + (bias ? bias[channel] : 0), op->activation);
          } else {
            SUM(int8_t, int32_t, input->params.zero_point)
            ((int8_t *)values_out)[index] = write_int8(context, op, sum, channel);
          }
        }
}

static bool contains(const IntArray *array, int number) {
  for (int i = 0; i < array->size; i++)
    if (array->data[i] == number) return true;
  return false;
}

static void *make_buffer(const Tensor *tensor) {
  size_t bytes = tensor->type == FLOAT32 ? sizeof(float) : 1;
  for (int i = 0; i < tensor->dims->size; i++) bytes *= tensor->dims->data[i];
  return malloc(bytes);
}

static void *init(Context *context, const char *buffer, size_t length) {
  (void)length;
  const DelegateParams *params = (const void *)buffer;
  Program *program = malloc(sizeof(Program) + params->nodes->size * sizeof(Operator));
  program->seconds = params->delegate->data;
  program->size = params->nodes->size;
  for (int i = 0; i < program->size; i++) {
    Node *node;
    Registration *registration;
    context->get_node(context, params->nodes->data[i], &node, &registration);
    Operator *op = &program->operators[i];
    *op = read_operator(context, node, find_kind(registration->builtin_code));
    if (!contains(params->outputs, op->output)) op->output_buffer = make_buffer(&context->tensors[op->output]);
    for (int j = 0; j < i; j++)
      if (program->operators[j].output == op->input) op->input_buffer = program->operators[j].output_buffer;
  }
  return program;
}

static void release(Context *context, void *buffer) {
  (void)context;
  Program *program = buffer;
  for (int i = 0; i < program->size; i++) free(program->operators[i].output_buffer);
  free(program);
}

static Status ready(Context *context, Node *node) {
  (void)context, (void)node;
  return 0;
}

static Status invoke(Context *context, Node *node) {
  const Program *program = node->user_data;
  double end = now();
  for (int i = 0; i < program->size; i++) {
    compute(context, &program->operators[i]);
    end += program->seconds[program->operators[i].kind];
  }
  sleep_until(end);
  return 0;
}

static Status prepare(Context *context, Delegate *delegate) {
  IntArray *plan;
  if (context->get_execution_plan(context, &plan)) return 1;
  IntArray *taken = malloc(sizeof(IntArray) + plan->size * sizeof(int));
  taken->size = 0;
  for (int i = 0; i < plan->size; i++) {
    Node *node;
    Registration *registration;
    if (context->get_node(context, plan->data[i], &node, &registration)) continue;
    if (takes(context, node, registration)) taken->data[taken->size++] = plan->data[i];
  }
  Registration kernel = {
      .init = init, .free = release, .prepare = ready, .invoke = invoke, .custom_name = "FakeNpu", .version = 1};
  Status status = context->replace_nodes(context, kernel, taken, delegate);
  free(taken);
  return status;
}

void tflite_plugin_destroy_delegate(Delegate *delegate) {
  /* LiteRT in Python also destroys what could not be created. */
  if (!delegate) return;
  free(delegate->data);
  free(delegate);
}

/* For tests: so many were made. */
int fake_npu_count = 0;

Delegate *tflite_plugin_create_delegate(char **keys, char **values, size_t size, void (*report)(const char *)) {
  double *seconds = calloc(KINDS, sizeof(double));
  /* The size may be an int of the caller. */
  for (int i = 0; i < (int)size; i++) {
    int kind = 0;
    while (kind < KINDS && strcmp(keys[i], KIND_NAMES[kind])) kind++;
    if (kind == KINDS) {
      report("the fake NPU's options are the kinds CONV_2D and DEPTHWISE_CONV_2D, not ");
      report(keys[i]);
      free(seconds);
      return NULL;
    }
    seconds[kind] = atof(values[i]);
  }
  fake_npu_count++;
  Delegate *delegate = calloc(1, sizeof(Delegate));
  delegate->data = seconds;
  delegate->prepare = prepare;
  return delegate;
}
