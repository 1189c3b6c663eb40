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
mod constraint;
mod devices;
mod engine;
mod error;
mod model;
mod options;
mod output;
mod raw;
mod runtime;
mod sampling;
mod session;

pub use cancel::Cancel;
pub use constraint::{Constraint, ConstraintForm};
pub use devices::{devices, version, Device};
pub use engine::{Answer, Engine, EngineOptions, EngineState, NextToken, Request, RequestOptions, RequestState};
pub use error::{Error, Reason, Result, Status};
pub use model::{Model, ModelInfo};
pub use options::{KvFormat, ModelOptions, Residence, SessionOptions, Specials};
pub use output::{Delta, Finish, OutputParser};
pub use runtime::{LogLevel, Runtime, RuntimeBuilder};
pub use sampling::Sampling;
pub use session::{FinishReason, Generation, GenerationState, Session, Token};
