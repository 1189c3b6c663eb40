// SPDX-License-Identifier: Apache-2.0
//! Threads and the log.

use std::ffi::CStr;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use minim_sys as sys;

use crate::error::Result;
use crate::raw::{create, text_of};

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(i32)]
#[allow(missing_docs)]
pub enum LogLevel {
    Error = sys::MINIM_LOG_ERROR,
    Warning = sys::MINIM_LOG_WARNING,
    Info = sys::MINIM_LOG_INFO,
    Debug = sys::MINIM_LOG_DEBUG,
}

type Log = dyn Fn(LogLevel, &str) + Send + Sync;

/// A part of the library's arithmetic. Call it once for each index, with the number of the thread that runs it.
pub type Task<'a> = dyn Fn(i64, i32) + Sync + 'a;

type ParallelFor = dyn Fn(i64, &Task<'_>) + Send + Sync;

pub(crate) struct Shared {
    pub(crate) handle: *mut sys::minim_runtime,
    // The library calls both until the last handle that was made with the runtime is released: each of them keeps this.
    _log: Option<Box<Box<Log>>>,
    _parallel_for: Option<Box<Box<ParallelFor>>>,
}

// "any thread"
unsafe impl Send for Shared {}
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        unsafe { sys::minim_runtime_free(self.handle) }
    }
}

/// The compute threads and the log. Clones share one runtime.
#[derive(Clone)]
pub struct Runtime(pub(crate) Arc<Shared>);

/// The options of a [`Runtime`].
#[derive(Default)]
pub struct RuntimeBuilder {
    params: sys::minim_runtime_params,
    log: Option<Box<Log>>,
    parallel_for: Option<Box<ParallelFor>>,
}

/// The placement of weights on machines with several NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum Numa {
    /// `Split` if there are several nodes and the system allows placement, else `Off`.
    Auto = sys::MINIM_NUMA_AUTO,
    /// Anywhere.
    Off = sys::MINIM_NUMA_OFF,
    /// Page by page over the nodes.
    Interleave = sys::MINIM_NUMA_INTERLEAVE,
    /// Rows of each weight on each node.
    Split = sys::MINIM_NUMA_SPLIT,
}

/// A part of the arithmetic as the library gives it, valid on any thread.
struct RawTask(sys::minim_task_fn, *const c_void);

unsafe impl Sync for RawTask {}

impl RawTask {
    fn run(&self, index: i64, slot: i32) {
        if let Some(task) = self.0 {
            unsafe { task(self.1, index, slot) }
        }
    }
}

unsafe extern "C" fn run_tasks(user_data: *mut c_void, n_tasks: i64, task: sys::minim_task_fn, context: *const c_void) {
    let parallel_for = &*user_data.cast::<Box<ParallelFor>>();
    let task = RawTask(task, context);
    let call = || parallel_for(n_tasks, &|index, slot| task.run(index, slot));
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        std::process::abort(); // tasks that were not run leave wrong results, and there is no way to say so
    }
}

unsafe extern "C" fn write_line(user_data: *mut c_void, level: i32, line: *const c_char) {
    let log = &*user_data.cast::<Box<Log>>();
    let level = match level {
        sys::MINIM_LOG_ERROR => LogLevel::Error,
        sys::MINIM_LOG_WARNING => LogLevel::Warning,
        sys::MINIM_LOG_INFO => LogLevel::Info,
        _ => LogLevel::Debug,
    };
    let line = CStr::from_ptr(line).to_string_lossy();
    let _ = catch_unwind(AssertUnwindSafe(|| log(level, &line)));
}

impl RuntimeBuilder {
    /// Sets the number of compute threads, including the calling thread. Default: the cores that this process may use.
    pub fn threads(mut self, count: i32) -> Self {
        self.params.n_threads = count;
        self
    }

    /// Sets the threads for steps of one token, which are bound by memory. Default: as [`threads`](Self::threads).
    pub fn threads_decode(mut self, count: i32) -> Self {
        self.params.n_threads_decode = count;
        self
    }

    /// Binds each thread of the library to a core.
    pub fn pin_threads(mut self, pin: bool) -> Self {
        self.params.pin_threads = i32::from(pin);
        self
    }

    /// Sets the placement on machines with several NUMA nodes.
    pub fn numa(mut self, numa: Numa) -> Self {
        self.params.numa = numa as i32;
        self
    }

    /// Runs the arithmetic on threads of the caller, in place of the library's; [`threads`](Self::threads) must be set, too. `run(n, task)`
    /// calls the task once for each index below n and returns when all have returned; slots are below the number of threads, and two
    /// calls at the same time have different ones. A panic in it aborts the process.
    pub fn parallel_for(mut self, run: impl Fn(i64, &Task<'_>) + Send + Sync + 'static) -> Self {
        self.parallel_for = Some(Box::new(run));
        self
    }

    /// Sets a callback for log lines up to this level, called from any thread. A panic in it is dropped.
    pub fn log(mut self, level: LogLevel, write: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.params.log_level = level as i32;
        self.log = Some(Box::new(write));
        self
    }

    /// Starts the threads. Errors: `Invalid` (a number out of range), `OutOfMemory` (threads cannot be started).
    pub fn build(mut self) -> Result<Runtime> {
        let mut log = self.log.map(Box::new);
        if let Some(log) = &mut log {
            self.params.log = Some(write_line);
            self.params.log_user_data = (&mut **log as *mut Box<Log>).cast();
        }
        let mut parallel_for = self.parallel_for.map(Box::new);
        if let Some(parallel_for) = &mut parallel_for {
            self.params.parallel_for = Some(run_tasks);
            self.params.parallel_for_user_data = (&mut **parallel_for as *mut Box<ParallelFor>).cast();
        }
        let handle = create(|out, err| unsafe { sys::minim_runtime_create(&self.params, out, err) })?;
        Ok(Runtime(Arc::new(Shared { handle, _log: log, _parallel_for: parallel_for })))
    }
}

impl Runtime {
    /// Starts a runtime with one thread for each core and no log.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Returns a builder, which sets threads and the log.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Returns the number of threads.
    pub fn thread_count(&self) -> i32 {
        unsafe { sys::minim_runtime_thread_count(self.0.handle) }
    }

    /// Returns the instruction set in use: "avx2", "avx512" ...
    pub fn cpu_level(&self) -> String {
        unsafe { text_of(sys::minim_runtime_cpu_level(self.0.handle)) }
    }

    /// Returns the NUMA mode in use: "off", "interleave" or "split".
    pub fn numa(&self) -> String {
        unsafe { text_of(sys::minim_runtime_numa(self.0.handle)) }
    }
}
