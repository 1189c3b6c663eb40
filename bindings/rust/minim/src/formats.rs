// SPDX-License-Identifier: Apache-2.0
//! Weight formats.

use minim_sys as sys;

use crate::error::{check, Result};
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
