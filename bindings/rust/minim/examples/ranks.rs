// SPDX-License-Identifier: Apache-2.0
//! Answers with every layer divided among processes: mpirun -n 2 --bind-to none ranks MODEL
fn main() -> minim::Result<()> {
    let path = std::env::args().nth(1).expect("usage: mpirun -n N ranks MODEL");
    let runtime = minim::Runtime::builder().threads(1).build()?;
    // Every process opens the model, with -1 for as many ranks as there are processes.
    let mut model = minim::Model::open(&runtime, &path, minim::ModelOptions::new().tensor_parallel(-1))?;
    let info = model.info()?;
    if info.process > 0 {
        return model.follow(); // until the first process closes the model
    }
    let mut session = model.session(minim::SessionOptions::new().context(2048))?;
    let prompt = model.tokenize_chat(r#"[{"role": "user", "content": "What is the capital of France?"}]"#, None)?;
    for token in session.generate(&prompt, &minim::Sampling::new().temperature(0.0), None)? {
        print!("{}", token?.text);
    }
    println!(" ({} processes)", info.n_processes);
    Ok(())
}
