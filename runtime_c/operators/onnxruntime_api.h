/* The part of ONNX Runtime's C ABI that an operator needs, declared here so that a build needs no headers of
 * it. Functions keep their places in its table from version to version (onnxruntime_c_api.h there says so).
 */
#ifndef TILEC_ONNXRUNTIME_API_H_
#define TILEC_ONNXRUNTIME_API_H_
#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus; /* NULL is success */
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtValue OrtValue;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtCustomOp OrtCustomOp;
typedef void (*ort_unused)(void);

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };
enum { ORT_API_VERSION = 17 }; /* the first with ParallelFor: ONNX Runtime 1.17 */

typedef struct OrtApi {
  OrtStatus* (*CreateStatus)(int code, const char* message);
  ort_unused from_1[25];
  OrtStatus* (*CreateCustomOpDomain)(const char* domain, OrtCustomOpDomain** out);
  OrtStatus* (*CustomOpDomain_Add)(OrtCustomOpDomain* domain, const OrtCustomOp* op);
  OrtStatus* (*AddCustomOpDomain)(OrtSessionOptions* options, OrtCustomOpDomain* domain);
  ort_unused from_29[22];
  OrtStatus* (*GetTensorMutableData)(OrtValue* value, void** out);
  ort_unused from_52[9];
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo* info, size_t* out);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo* info, int64_t* out, size_t count);
  ort_unused from_63[2];
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue* value, OrtTensorTypeAndShapeInfo** out);
  ort_unused from_66[19];
  OrtStatus* (*KernelInfoGetAttribute_float)(const OrtKernelInfo* info, const char* name, float* out);
  OrtStatus* (*KernelInfoGetAttribute_int64)(const OrtKernelInfo* info, const char* name, int64_t* out);
  ort_unused from_87[3];
  OrtStatus* (*KernelContext_GetInput)(const OrtKernelContext* context, size_t index, const OrtValue** out);
  OrtStatus* (*KernelContext_GetOutput)(OrtKernelContext* context, size_t index, const int64_t* extents,
                                        size_t count, OrtValue** out);
  ort_unused from_92;
  void (*ReleaseStatus)(OrtStatus* status);
  ort_unused from_94[5];
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo* info);
  ort_unused from_100[174];
  OrtStatus* (*KernelContext_ParallelFor)(const OrtKernelContext* context, void (*task)(void*, size_t),
                                          size_t count, size_t batches, void* closure);
} OrtApi;

#define AT_PLACE(function, place) \
  _Static_assert(offsetof(OrtApi, function) == (place) * sizeof(ort_unused), #function)
AT_PLACE(AddCustomOpDomain, 28);
AT_PLACE(GetTensorMutableData, 51);
AT_PLACE(GetTensorTypeAndShape, 65);
AT_PLACE(KernelContext_GetOutput, 91);
AT_PLACE(ReleaseTensorTypeAndShapeInfo, 99);
AT_PLACE(KernelContext_ParallelFor, 274);

typedef struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version); /* NULL: an older one */
  const char* (*GetVersionString)(void);
} OrtApiBase;

/* What ONNX Runtime asks an operator, as version 17 has it. */
struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*); /* before version 16 */
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*); /* NULL: CPU */
  int (*GetInputType)(const OrtCustomOp*, size_t index);       /* an ONNX TensorProto.DataType */
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t index);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void* kernel, OrtKernelContext*); /* before version 16 */
  void (*KernelDestroy)(void* kernel);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t index); /* 0: required */
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t index);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t index); /* 0: where the operator runs */
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp*, void* context); /* NULL: shapes show at run time */
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
};

#endif
