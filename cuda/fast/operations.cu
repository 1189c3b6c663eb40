#include "cuda/fast/device_thread.h"
#include "cuda/fast/operations.h"
#include "cuda/fast/operations.inl"
