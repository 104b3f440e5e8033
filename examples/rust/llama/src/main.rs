//! A decoder-only language model: token ids on stdin, a prompt a line; new token ids on stdout, a line for each.
mod checkpoint;
mod config;
mod json;
mod model;

use llama_kernels_sys::Exec;
use model::{Model, Sampling};
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

const USAGE: &str = "usage: llama FOLDER [--tokens N] [--cache TOKENS] [--chunk TOKENS] [--threads N]
             [--temperature T] [--top-k K] [--top-p P] [--seed S]
stdin: prompts of token ids, one a line; stdout: the new ids of each.";

struct Options {
    folder: PathBuf,
    tokens: usize,
    cache: usize,
    chunk: usize,
    threads: u32,
    sampling: Sampling,
}

fn parse<T: FromStr>(name: &str, text: Option<String>) -> Result<T, String> {
    let text = text.ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
    text.parse().map_err(|_| format!("{name} does not take \"{text}\""))
}

fn parse_options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let sampling = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 };
    let mut options = Options { folder: PathBuf::new(), tokens: 32, cache: 4096, chunk: 512, threads: 0, sampling };
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--tokens" => options.tokens = parse(&name, arguments.next())?,
            "--cache" => options.cache = parse(&name, arguments.next())?,
            "--chunk" => options.chunk = parse(&name, arguments.next())?,
            "--threads" => options.threads = parse(&name, arguments.next())?,
            "--temperature" => options.sampling.temperature = parse(&name, arguments.next())?,
            "--top-k" => options.sampling.top_k = parse(&name, arguments.next())?,
            "--top-p" => options.sampling.top_p = parse(&name, arguments.next())?,
            "--seed" => options.sampling.seed = parse(&name, arguments.next())?,
            _ if !name.starts_with("--") && options.folder.as_os_str().is_empty() => options.folder = name.into(),
            _ => return Err(format!("unknown option {name}\n{USAGE}")),
        }
    }
    if options.folder.as_os_str().is_empty() {
        return Err(USAGE.to_string());
    }
    if options.tokens == 0 || options.cache == 0 || options.chunk == 0 {
        return Err("--tokens, --cache and --chunk take numbers from 1 on".to_string());
    }
    Ok(options)
}

/// The new tokens behind a prompt, which enters the cache in chunks.
fn answer(model: &mut Model, prompt: &[i32], options: &Options) -> Result<Vec<i32>, Box<dyn Error>> {
    let (mut past, mut last) = (0, None);
    for chunk in prompt.chunks(options.chunk) {
        last = Some(model.step(chunk, past, &options.sampling)?);
        past += chunk.len();
    }
    let mut made = vec![last.ok_or("a prompt has no tokens")?];
    while made.len() < options.tokens {
        made.push(model.step(&made[made.len() - 1..], past, &options.sampling)?);
        past += 1;
    }
    Ok(made)
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut model = Model::load(&options.folder, options.cache, Exec::workers(options.threads)?)?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let prompt = line.split_whitespace().map(|word| parse("a prompt", Some(word.to_string()))).collect::<Result<Vec<i32>, _>>()?;
        let words: Vec<String> = answer(&mut model, &prompt, options)?.iter().map(i32::to_string).collect();
        writeln!(io::stdout(), "{}", words.join(" "))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = match parse_options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("llama: {message}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("llama: {error}");
            ExitCode::FAILURE
        }
    }
}
