// SPDX-License-Identifier: Apache-2.0
//! Errors of calls.

use std::fmt;
use std::io;

use minim_sys as sys;

/// The result of a call of the library.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)] // minim.h has a line for each
pub enum Status {
    Invalid,
    NotFound,
    Io,
    Format,
    Unsupported,
    OutOfMemory,
    OutOfDeviceMemory,
    ContextFull,
    Cancelled,
    DeviceLost,
    Busy,
    Internal,
    PeerLost,
}

/// The fault of a bad file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Reason {
    Truncated,
    Format,
    Limit,
    Type,
    Shape,
    Offset,
    Duplicate,
    Value,
    Io,
}

impl Status {
    fn of_number(number: i32) -> Self {
        match number {
            sys::MINIM_E_INVALID => Status::Invalid,
            sys::MINIM_E_NOT_FOUND => Status::NotFound,
            sys::MINIM_E_IO => Status::Io,
            sys::MINIM_E_FORMAT => Status::Format,
            sys::MINIM_E_UNSUPPORTED => Status::Unsupported,
            sys::MINIM_E_OUT_OF_MEMORY => Status::OutOfMemory,
            sys::MINIM_E_OUT_OF_DEVICE_MEMORY => Status::OutOfDeviceMemory,
            sys::MINIM_E_CONTEXT_FULL => Status::ContextFull,
            sys::MINIM_E_CANCELLED => Status::Cancelled,
            sys::MINIM_E_DEVICE_LOST => Status::DeviceLost,
            sys::MINIM_E_BUSY => Status::Busy,
            sys::MINIM_E_PEER_LOST => Status::PeerLost,
            _ => Status::Internal,
        }
    }
}

impl Reason {
    fn of_number(number: i32) -> Option<Self> {
        Some(match number {
            sys::MINIM_REASON_TRUNCATED => Reason::Truncated,
            sys::MINIM_REASON_FORMAT => Reason::Format,
            sys::MINIM_REASON_LIMIT => Reason::Limit,
            sys::MINIM_REASON_TYPE => Reason::Type,
            sys::MINIM_REASON_SHAPE => Reason::Shape,
            sys::MINIM_REASON_OFFSET => Reason::Offset,
            sys::MINIM_REASON_DUPLICATE => Reason::Duplicate,
            sys::MINIM_REASON_VALUE => Reason::Value,
            sys::MINIM_REASON_IO => Reason::Io,
            _ => return None,
        })
    }
}

/// A failed call: what failed, and the figures that `minim_error` has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// The kind of failure.
    pub status: Status,
    /// The fault of the file, if the error is about a bad file.
    pub reason: Option<Reason>,
    /// One sentence that names the thing and the value.
    pub message: String,
    /// The offset in the file or text, in bytes; -1 if unknown.
    pub offset: i64,
    /// Bytes or tokens requested, if there were too few.
    pub requested: i64,
    /// Bytes or tokens available.
    pub available: i64,
    /// The system's error number; 0 if there is none.
    pub os_code: i64,
    /// The index of the device; -1 if it is not about a device.
    pub device: i32,
}

impl Error {
    fn of_raw(err: &sys::minim_error) -> Self {
        let bytes: Vec<u8> = err.message.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).collect();
        Error {
            status: Status::of_number(err.status),
            reason: Reason::of_number(err.reason),
            message: String::from_utf8_lossy(&bytes).into_owned(),
            offset: err.offset,
            requested: err.requested,
            available: err.available,
            os_code: err.os_code,
            device: err.device,
        }
    }

    /// Makes an error about an argument that cannot be passed to the library.
    pub(crate) fn invalid(message: String) -> Self {
        Error { status: Status::Invalid, reason: None, message, offset: -1, requested: 0, available: 0, os_code: 0, device: -1 }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.status {
            Status::NotFound => io::ErrorKind::NotFound,
            Status::Invalid => io::ErrorKind::InvalidInput,
            Status::Format => io::ErrorKind::InvalidData,
            Status::Unsupported => io::ErrorKind::Unsupported,
            Status::OutOfMemory | Status::OutOfDeviceMemory => io::ErrorKind::OutOfMemory,
            Status::Cancelled => io::ErrorKind::Interrupted,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// Makes a call that takes a `minim_error` last.
pub(crate) fn check(call: impl FnOnce(*mut sys::minim_error) -> sys::minim_status) -> Result<()> {
    let mut err = sys::minim_error::default();
    if call(&mut err) == sys::MINIM_OK {
        return Ok(());
    }
    Err(Error::of_raw(&err))
}
