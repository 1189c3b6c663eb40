// SPDX-License-Identifier: Apache-2.0
//! A service over TCP: each line of a client is a question, the answer comes as it is generated, then an empty line.
//!
//!     cargo run --example service -- MODEL [ADDRESS]        ADDRESS: 127.0.0.1:7878
//!
//! Each connection has a thread; the engine answers all of them together. A client that goes away cancels its request.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use minim::{Engine, EngineOptions, Model, ModelOptions, RequestOptions, Runtime, Sampling};

const LONGEST_QUESTION: u64 = 64 << 10;

/// `text` as a string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out + "\""
}

fn answer(model: &Model, engine: &Engine, question: &str, stream: &mut TcpStream) -> io::Result<()> {
    let messages = format!(r#"[{{"role": "user", "content": {}}}]"#, quoted(question));
    let prompt = model.tokenize_chat(&messages, None)?;
    let sampling = Sampling::new().temperature(1.0).top_p(0.95).top_k(40).max_tokens(1024);
    for token in engine.submit(&prompt, &sampling, RequestOptions::new())? {
        stream.write_all(token?.text.as_bytes())?;
    }
    stream.write_all(b"\n\n")
}

fn serve(model: &Model, engine: &Engine, mut stream: TcpStream) -> io::Result<()> {
    let mut input = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if io::Read::take(&mut input, LONGEST_QUESTION).read_line(&mut line)? == 0 {
            return Ok(());
        }
        answer(model, engine, line.trim(), &mut stream)?;
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = match arguments.next() {
        Some(path) => path,
        None => {
            eprintln!("usage: service MODEL [ADDRESS]");
            std::process::exit(2);
        }
    };
    let runtime = Runtime::new()?;
    let model = Arc::new(Model::open(&runtime, path, ModelOptions::new())?);
    let engine = Arc::new(model.engine(EngineOptions::new().kv_tokens(65536))?);
    let listener = TcpListener::bind(arguments.next().unwrap_or_else(|| "127.0.0.1:7878".into()))?;
    eprintln!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (model, engine, stream) = (Arc::clone(&model), Arc::clone(&engine), stream?);
        thread::spawn(move || {
            if let Err(error) = serve(&model, &engine, stream) {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}
