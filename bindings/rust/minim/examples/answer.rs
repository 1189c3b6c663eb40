// SPDX-License-Identifier: Apache-2.0
//! Asks a model a question and prints the answer while it is generated.
use std::io::Write;

fn main() -> minim::Result<()> {
    let path = std::env::args().nth(1).expect("usage: answer MODEL");
    let runtime = minim::Runtime::new()?;
    let model = minim::Model::open(&runtime, &path, minim::ModelOptions::new())?;
    let mut session = model.session(minim::SessionOptions::new().context(2048))?; // tokens, prompt and answer together
    let messages = r#"[{"role": "user", "content": "What is the capital of France?"}]"#;
    let prompt = model.tokenize_chat(messages, None)?;
    for token in session.generate(&prompt, &minim::Sampling::new().temperature(0.0), None)? {
        print!("{}", token?.text);
        std::io::stdout().flush().ok();
    }
    println!();
    Ok(())
}
