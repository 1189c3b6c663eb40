// SPDX-License-Identifier: Apache-2.0
//! Threads and the log.

use std::ffi::CStr;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use minim_sys as sys;

use crate::error::Result;
use crate::raw::create;

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum LogLevel {
    Error = sys::MINIM_LOG_ERROR,
    Warning = sys::MINIM_LOG_WARNING,
    Info = sys::MINIM_LOG_INFO,
    Debug = sys::MINIM_LOG_DEBUG,
}

type Log = dyn Fn(LogLevel, &str) + Send + Sync;

pub(crate) struct Shared {
    pub(crate) handle: *mut sys::minim_runtime,
    // The library writes lines until the last handle that was made with the runtime is released: each of them keeps this.
    _log: Option<Box<Box<Log>>>,
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
        let handle = create(|out, err| unsafe { sys::minim_runtime_create(&self.params, out, err) })?;
        Ok(Runtime(Arc::new(Shared { handle, _log: log })))
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
}
