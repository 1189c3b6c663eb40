#include "cuda/fast/attend.inl"
#include "cuda/fast/device_thread.h"
