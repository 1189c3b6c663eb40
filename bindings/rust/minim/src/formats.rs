// SPDX-License-Identifier: Apache-2.0
//! Weight formats.

use minim_sys as sys;

use crate::error::{check, Error, Result};
use crate::raw::{c_text, text_of};

/// A weight format.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FormatInfo {
    /// "Q4_K".
    pub name: String,
    /// The number of the type in GGUF files; -1: only in safetensors folders.
    pub gguf_type: i32,
    /// Elements of a block, which share their scales.
    pub block_elems: i32,
    /// Bytes of a block.
    pub block_bytes: i32,
    /// Bytes of a scale for the whole row, before its blocks.
    pub row_header_bytes: i32,
    /// Whether [`decode_format`] decodes it.
    pub is_weight: bool,
}

/// Returns the weight formats.
pub fn formats() -> Result<Vec<FormatInfo>> {
    let format = |index| {
        let mut info = sys::minim_format_info::default();
        check(|err| unsafe { sys::minim_format_get_info(index, &mut info, err) })?;
        Ok(FormatInfo {
            name: unsafe { text_of(info.name) },
            gguf_type: info.gguf_type,
            block_elems: info.block_elems,
            block_bytes: info.block_bytes,
            row_header_bytes: info.row_header_bytes,
            is_weight: info.is_weight != 0,
        })
    };
    (0..unsafe { sys::minim_format_count() }).map(format).collect()
}

/// Decodes one row of `count` elements. `name`: as in model files, "Q4_K". Errors: `Invalid` (a count or row of another size).
pub fn decode_format(name: &str, row: &[u8], count: usize) -> Result<Vec<f32>> {
    let name = c_text(name, "the format")?;
    let mut out = Vec::new();
    // A row has at least a byte for every 32 elements: a wrong count is found before it is allocated.
    out.resize(count.min(row.len().saturating_mul(32)), 0.0);
    check(|err| unsafe {
        sys::minim_format_decode(name.as_ptr(), row.as_ptr().cast(), row.len(), count, out.as_mut_ptr(), err)
    })?;
    Ok(out)
}

/// Encodes rows of `columns` weights, one behind the other in `x`, with the smallest weighted square error that a search finds.
/// `importance`: the weight of each column's square errors. Errors: `Invalid` (sizes that do not match, numbers that are not finite,
/// weights that the format's scales do not hold), `Unsupported` (a format without an encoder).
pub fn encode_format(name: &str, x: &[f32], columns: usize, importance: Option<&[f32]>) -> Result<Vec<u8>> {
    if columns == 0 || x.len() % columns != 0 {
        return Err(Error::invalid(format!("{} weights are not whole rows of {} columns", x.len(), columns)));
    }
    if let Some(importance) = importance {
        if importance.len() != columns {
            return Err(Error::invalid(format!("importance has {} numbers for {} columns", importance.len(), columns)));
        }
    }
    let rows = x.len() / columns;
    let size = |info: &FormatInfo| {
        info.row_header_bytes as usize + columns / info.block_elems as usize * info.block_bytes as usize
    };
    let row_size = formats()?.iter().find(|info| info.name == name).map_or(0, size);
    let name = c_text(name, "the format")?;
    let mut out = vec![0; rows * row_size];
    let weights = importance.map_or(std::ptr::null(), |numbers| numbers.as_ptr());
    check(|err| unsafe {
        sys::minim_format_encode(name.as_ptr(), x.as_ptr(), rows, columns, weights, out.as_mut_ptr().cast(), out.len(), err)
    })?;
    Ok(out)
}
