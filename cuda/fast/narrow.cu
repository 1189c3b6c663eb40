#include "cuda/fast/device_thread.h"
#include "cuda/fast/narrow.inl"
