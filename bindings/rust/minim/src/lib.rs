// SPDX-License-Identifier: Apache-2.0
//! Runs MiniMax-M2 language models inside a Rust program.
//!
//! ```no_run
//! # fn main() -> minim::Result<()> {
//! let runtime = minim::Runtime::builder().threads(8).build()?;
//! let model = minim::Model::open(&runtime, "model.gguf", minim::ModelOptions::new())?;
//! let mut session = model.session(minim::SessionOptions::new().context(2048))?;
//! let prompt = model.tokenize_chat(r#"[{"role": "user", "content": "Hello"}]"#, None)?;
//! for token in session.generate(&prompt, &minim::Sampling::new().temperature(1.0), None)? {
//!     print!("{}", token?.text);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! An [`Engine`] serves many prompts at once; its [`Request`]s are iterators, and futures for any executor. `minim.h` is the manual
//! of everything below: names and meanings are the same. Handles keep their parents alive and may be dropped in any order.
//! A panic in a callback does not unwind through the library: one in a progress callback continues in the call, others are dropped.
#![warn(missing_docs)]

mod cancel;
mod check;
mod checkpoint;
mod constraint;
mod convert;
mod decoder;
mod devices;
mod engine;
mod error;
mod formats;
mod importance;
mod memory;
mod model;
mod options;
mod output;
mod plan;
mod raw;
mod runtime;
mod sampling;
mod session;

pub use cancel::Cancel;
pub use check::{check, CheckOptions};
pub use checkpoint::{Checkpoint, RecommendedSampling, TensorInfo};
pub use constraint::{Constraint, ConstraintForm, ConstraintOptions};
pub use convert::{convert, ConvertOptions, ConvertProgress};
pub use decoder::Decoder;
pub use devices::{build_info, devices, has_feature, version, Device};
pub use engine::{Answer, Engine, EngineOptions, EngineState, NextToken, Request, RequestOptions, RequestState};
pub use error::{Error, Reason, Result, Status};
pub use formats::{decode_format, encode_format, formats, FormatInfo};
pub use importance::{Importance, ImportanceFormat, ImportanceOptions};
pub use memory::{DeviceMemory, ExpertCache, NodeMemory};
pub use model::{ChatOptions, Model, ModelInfo};
pub use options::{Expand, ExpertMoves, KvFormat, ModelOptions, Residence, SessionOptions, Specials};
pub use output::{parse_output, ChatFormat, ChatMarkup, Delta, Finish, Output, OutputOptions, OutputParser, Reasoning, ToolCall};
pub use plan::{plan, PlanOptions};
pub use runtime::{LogLevel, Numa, Runtime, RuntimeBuilder, Task};
pub use sampling::{sampling_options, Sampling, SamplingOption};
pub use session::{FinishReason, Generation, GenerationState, Session, Token};
