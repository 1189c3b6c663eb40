// The kernels of shortlists on emulated threads.
#include "cuda/fast/shortlist.inl"
#include "gpu/emulated_thread.h"
