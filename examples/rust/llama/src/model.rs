//! The model: which kernel runs on what, in which order. Everything is float32.
use crate::checkpoint::Checkpoint;
use crate::config::{Config, Eps};
use llama_kernels_sys as kernels;
use llama_kernels_sys::Exec;
use std::error::Error;
use std::path::Path;

/// Tokens of a page of the cache, for which llama.toml has kernels.
const PAGE: usize = 16;

type Done = Result<(), Box<dyn Error>>;

/// How tokens are drawn; a temperature of 0 takes the likeliest one.
pub struct Sampling {
    pub temperature: f32,
    /// 0: of all.
    pub top_k: i32,
    pub top_p: f32,
    pub seed: u64,
}

struct Layer {
    input_gain: Vec<f32>,
    inner_gain: Vec<f32>,
    qkv: Vec<f32>,
    qkv_bias: Vec<f32>,
    q_gain: Vec<f32>,
    k_gain: Vec<f32>,
    out: Vec<f32>,
    gate_up: Vec<f32>,
    down: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

pub struct Model {
    config: Config,
    exec: Exec,
    embeddings: Vec<f32>,
    /// None: the table of embeddings.
    head: Option<Vec<f32>>,
    last_gain: Vec<f32>,
    layers: Vec<Layer>,
    cos: Vec<f32>,
    sin: Vec<f32>,
    pages: usize,
}

/// Activations of a step, rows of its tokens.
struct Rows {
    stream: Vec<f32>,
    next: Vec<f32>,
    normed: Vec<f32>,
    projected: Vec<f32>,
}

impl Model {
    /// A model of `folder` for a sequence of up to `longest` tokens.
    pub fn load(folder: &Path, longest: usize, exec: Exec) -> Result<Model, Box<dyn Error>> {
        let (config, files) = (Config::read(folder)?, Checkpoint::open(folder)?);
        let pages = longest.min(config.positions).div_ceil(PAGE);
        let (cos, sin) = config.rotary_tables(pages * PAGE);
        let table = [config.vocabulary, config.hidden];
        Ok(Model {
            embeddings: files.read("model.embed_tokens.weight", &table)?,
            head: if config.tied { None } else { Some(files.read("lm_head.weight", &table)?) },
            last_gain: files.read("model.norm.weight", &[config.hidden])?,
            layers: (0..config.layers).map(|number| load_layer(&files, &config, number, pages)).collect::<Result<_, _>>()?,
            config,
            exec,
            cos,
            sin,
            pages,
        })
    }

    /// Tokens that a sequence may have.
    pub fn longest(&self) -> usize {
        self.pages * PAGE
    }

    /// Brings `ids` into the cache behind `past` tokens, and draws the token behind them.
    pub fn step(&mut self, ids: &[i32], past: usize, sampling: &Sampling) -> Result<i32, Box<dyn Error>> {
        let vocabulary = self.config.vocabulary;
        if past + ids.len() > self.longest() {
            return Err(format!("a sequence may have {} tokens: --cache, or the model, allows no more", self.longest()).into());
        }
        if let Some(unknown) = ids.iter().find(|id| **id < 0 || **id as usize >= vocabulary) {
            return Err(format!("the model has no token {unknown}").into());
        }
        let hidden = self.config.hidden;
        let rows = || vec![0.0; ids.len() * hidden];
        let mut x = Rows { stream: rows(), next: rows(), normed: rows(), projected: rows() };
        let Model { config, exec, layers, .. } = self;
        let mut step = Step { config, exec, tokens: ids.len(), past, pages: self.pages, cos: &self.cos, sin: &self.sin };
        let (tokens, n) = (ids.len() as i64, hidden as i64);
        kernels::embedding_float32(step.exec, ids, &self.embeddings, &mut x.stream, tokens, vocabulary as i64, n)?;
        step.norm(&x.stream, &layers[0].input_gain, &mut x.normed)?;
        for number in 0..layers.len() {
            step.attend(&mut layers[number], &mut x)?;
            step.add_and_norm(&mut x, &layers[number].inner_gain)?;
            step.feed_forward(&layers[number], &mut x)?;
            step.add_and_norm(&mut x, layers.get(number + 1).map_or(&self.last_gain, |next| &next.input_gain))?;
        }
        let head = self.head.as_ref().unwrap_or(&self.embeddings);
        step.sample(&x.normed[(ids.len() - 1) * hidden..], head, sampling)
    }
}

/// What the calls of a step have in common.
struct Step<'a> {
    config: &'a Config,
    exec: &'a mut Exec,
    tokens: usize,
    past: usize,
    pages: usize,
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Step<'_> {
    /// y = norm(x) * gain
    fn norm(&mut self, x: &[f32], gain: &[f32], y: &mut [f32]) -> Done {
        let (m, n) = (self.tokens as i64, self.config.hidden as i64);
        match self.config.eps {
            Eps::E5 => kernels::rmsnorm_e5_float32(self.exec, x, gain, y, m, n, n)?,
            Eps::E6 => kernels::rmsnorm_e6_float32(self.exec, x, gain, y, m, n, n)?,
        }
        Ok(())
    }

    /// stream += projected; normed = norm(stream) * gain
    fn add_and_norm(&mut self, x: &mut Rows, gain: &[f32]) -> Done {
        let (m, n) = (self.tokens as i64, self.config.hidden as i64);
        let norm = match self.config.eps {
            Eps::E5 => kernels::add_rmsnorm_e5_float32,
            Eps::E6 => kernels::add_rmsnorm_e6_float32,
        };
        norm(self.exec, &x.projected, &x.stream, gain, &mut x.normed, &mut x.next, m, n, n)?;
        std::mem::swap(&mut x.stream, &mut x.next);
        Ok(())
    }

    /// y (rows, features) = x (rows, inputs) by weights (features, inputs)
    fn linear(&mut self, x: &[f32], weights: &[f32], y: &mut [f32], inputs: usize) -> Done {
        let (rows, features) = (x.len() / inputs, weights.len() / inputs);
        Ok(kernels::linear_float32(self.exec, x, weights, y, rows as i64, inputs as i64, features as i64)?)
    }

    /// projected = attention of normed over the cache, which gets the step's keys and values
    fn attend(&mut self, layer: &mut Layer, x: &mut Rows) -> Done {
        let config = self.config;
        let (heads, dim, all) = (config.heads, config.head_dim, self.past + self.tokens);
        let mut qkv = vec![0.0; self.tokens * config.fused_heads() * dim];
        self.linear(&x.normed, &layer.qkv, &mut qkv, config.hidden)?;
        let positions: Vec<i32> = (self.past as i32..all as i32).collect();
        let slots = &positions; // pages lie in the order of the sequence
        let (mut queries, mut context) = (vec![0.0; self.tokens * heads * dim], vec![0.0; self.tokens * heads * dim]);
        let rotate = if config.qk_norm { kernels::rotary_to_cache_normed_float32 } else { kernels::rotary_to_cache_float32 };
        rotate(
            self.exec, &qkv, &layer.qkv_bias, &layer.q_gain, &layer.k_gain, config.eps.value(), self.cos, self.sin, &positions, slots,
            &mut queries, &mut layer.keys, &mut layer.values, self.tokens as i64, heads as i64, config.key_heads as i64,
            dim as i64, (self.pages * PAGE) as i64, self.pages as i64, PAGE as i64,
        )?;
        let table: Vec<i32> = (0..self.pages as i32).collect();
        let (bounds, lengths) = ([0, self.tokens as i32], [all as i32]);
        let window = config.window.unwrap_or(self.pages * PAGE) as i32;
        kernels::attention_paged_float32(
            self.exec, &queries, &layer.keys, &layer.values, &table, &bounds, &lengths, window, self.tokens as i32,
            &mut context, self.tokens as i64, config.key_heads as i64, (heads / config.key_heads) as i64, dim as i64,
            self.pages as i64, PAGE as i64, 1, self.pages as i64,
        )?;
        self.linear(&context, &layer.out, &mut x.projected, heads * dim)
    }

    /// projected = down(silu(gate(normed)) * up(normed))
    fn feed_forward(&mut self, layer: &Layer, x: &mut Rows) -> Done {
        let (tokens, inner) = (self.tokens, self.config.inner);
        let (mut fused, mut activated) = (vec![0.0; tokens * 2 * inner], vec![0.0; tokens * inner]);
        self.linear(&x.normed, &layer.gate_up, &mut fused, self.config.hidden)?;
        let (m, n) = (tokens as i64, inner as i64);
        kernels::silu_mul_float32(self.exec, &fused, &fused[inner..], &mut activated, m, n, 2 * n, 2 * n)?;
        self.linear(&activated, &layer.down, &mut x.projected, inner)
    }

    /// The token that follows the one of `normed`.
    fn sample(&mut self, normed: &[f32], head: &[f32], sampling: &Sampling) -> Result<i32, Box<dyn Error>> {
        let mut logits = vec![0.0; self.config.vocabulary];
        self.linear(normed, head, &mut logits, self.config.hidden)?;
        let (seed, position) = ([sampling.seed as i32, (sampling.seed >> 32) as i32], self.past + self.tokens - 1);
        let mut drawn = [0];
        kernels::sample_float32(
            self.exec, &logits, &[sampling.temperature], &[sampling.top_k], &[sampling.top_p], &seed, &[position as i32],
            &mut drawn, 1, logits.len() as i64,
        )?;
        Ok(drawn[0])
    }
}

fn load_layer(files: &Checkpoint, config: &Config, number: usize, pages: usize) -> Result<Layer, String> {
    let (hidden, inner, dim) = (config.hidden, config.inner, config.head_dim);
    let (q, kv) = (config.heads * dim, config.key_heads * dim);
    let read = |name: &str, shape: &[usize]| files.read(&format!("model.layers.{number}.{name}"), shape);
    let stacked = |parts: &[(&str, usize)], columns: Option<usize>| -> Result<Vec<f32>, String> {
        let shape = |rows: usize| [Some(rows), columns].into_iter().flatten().collect::<Vec<_>>();
        let read = |(name, rows): &(&str, usize)| read(name, &shape(*rows));
        Ok(parts.iter().map(read).collect::<Result<Vec<_>, _>>()?.concat())
    };
    let projections = |leaf: &str, columns| {
        let names = ["q", "k", "v"].map(|which| format!("self_attn.{which}_proj.{leaf}"));
        stacked(&[(&names[0], q), (&names[1], kv), (&names[2], kv)], columns)
    };
    let head_gain = |which: &str| {
        if config.qk_norm { read(&format!("self_attn.{which}_norm.weight"), &[dim]) } else { Ok(vec![0.0; dim]) }
    };
    let cache = || vec![0.0; pages * PAGE * kv];
    Ok(Layer {
        input_gain: read("input_layernorm.weight", &[hidden])?,
        inner_gain: read("post_attention_layernorm.weight", &[hidden])?,
        qkv: projections("weight", Some(hidden))?,
        qkv_bias: if config.qkv_bias { projections("bias", None)? } else { vec![0.0; q + 2 * kv] },
        q_gain: head_gain("q")?,
        k_gain: head_gain("k")?,
        out: read("self_attn.o_proj.weight", &[hidden, q])?,
        gate_up: stacked(&[("mlp.gate_proj.weight", inner), ("mlp.up_proj.weight", inner)], Some(hidden))?,
        down: read("mlp.down_proj.weight", &[hidden, inner])?,
        keys: cache(),
        values: cache(),
    })
}
