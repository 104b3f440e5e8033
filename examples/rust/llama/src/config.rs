//! What config.json says of a decoder-only model.
use crate::json::Json;
use std::fs;
use std::path::Path;

/// Scaling of rotary frequencies: all of them by a factor, or long waves alone, those of middle length in part.
pub enum RopeScaling {
    None,
    Linear { factor: f64 },
    Llama3 { factor: f64, low: f64, high: f64, original: f64 },
}

/// The eps of norms, for which the library has kernels.
#[derive(Clone, Copy)]
pub enum Eps {
    E5,
    E6,
}

impl Eps {
    pub fn value(self) -> f32 {
        match self {
            Eps::E5 => 1e-5,
            Eps::E6 => 1e-6,
        }
    }
}

pub struct Config {
    pub hidden: usize,
    pub inner: usize,
    pub layers: usize,
    pub vocabulary: usize,
    pub positions: usize,
    pub heads: usize,
    pub key_heads: usize,
    pub head_dim: usize,
    /// Keys that a query sees.
    pub window: Option<usize>,
    pub eps: Eps,
    pub theta: f64,
    pub scaling: RopeScaling,
    /// The table of embeddings is the last product's weight, too.
    pub tied: bool,
    /// Heads of queries and keys are normed.
    pub qk_norm: bool,
    pub qkv_bias: bool,
}

impl Config {
    /// Of a Llama, Mistral, Qwen2 or Qwen3 model. Fails for what is malformed and for what there is no code for.
    pub fn read(folder: &Path) -> Result<Config, String> {
        let file = folder.join("config.json");
        let text = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let read = || Config::of(&Json::parse(&text)?);
        read().map_err(|why: String| format!("{}: {why}", file.display()))
    }

    fn of(json: &Json) -> Result<Config, String> {
        let family = json.get("model_type").and_then(Json::text).ok_or("lacks \"model_type\"")?;
        if !["llama", "mistral", "qwen2", "qwen3"].contains(&family) {
            return Err(format!("models of type {family} are not supported: llama, mistral, qwen2 and qwen3 are"));
        }
        for key in ["mlp_bias", "attention_bias"] {
            if flag(json, key) {
                return Err(format!("{key} is not supported"));
            }
        }
        let (hidden, heads) = (integer(json, "hidden_size")?, integer(json, "num_attention_heads")?);
        let rope = json.get("rope_parameters").or_else(|| json.get("rope_scaling"));
        let windowed = family == "mistral" || flag(json, "use_sliding_window");
        let theta = rope.and_then(|rope| rope.get("rope_theta")).or_else(|| json.get("rope_theta")).and_then(Json::number);
        Ok(Config {
            hidden,
            inner: integer(json, "intermediate_size")?,
            layers: integer(json, "num_hidden_layers")?,
            vocabulary: integer(json, "vocab_size")?,
            positions: integer(json, "max_position_embeddings")?,
            heads,
            key_heads: integer(json, "num_key_value_heads").unwrap_or(heads),
            head_dim: integer(json, "head_dim").unwrap_or(hidden / heads),
            window: json.get("sliding_window").and_then(Json::integer).filter(|_| windowed),
            eps: eps(json)?,
            theta: theta.unwrap_or(10000.0),
            scaling: rope.map_or(Ok(RopeScaling::None), scaling)?,
            tied: flag(json, "tie_word_embeddings"),
            qk_norm: family == "qwen3",
            qkv_bias: family == "qwen2",
        })
    }

    pub fn fused_heads(&self) -> usize {
        self.heads + 2 * self.key_heads
    }

    /// Cosines and sines of the angles of each position, head_dim / 2 each. Angles are products in float32, as
    /// checkpoints were trained with.
    pub fn rotary_tables(&self, positions: usize) -> (Vec<f32>, Vec<f32>) {
        let exponent = |pair: usize| -2.0 * pair as f64 / self.head_dim as f64;
        let frequencies: Vec<f32> =
            (0..self.head_dim / 2).map(|pair| self.scaled(self.theta.powf(exponent(pair))) as f32).collect();
        let angles = (0..positions).flat_map(|at| frequencies.iter().map(move |frequency| at as f32 * frequency));
        angles.map(|angle| (angle.cos(), angle.sin())).unzip()
    }

    /// A frequency in radians a token after scaling.
    fn scaled(&self, frequency: f64) -> f64 {
        match self.scaling {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 { factor, low, high, original } => {
                let waves = original * frequency / std::f64::consts::TAU; // that fit into the length of training
                let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / factor)
            }
        }
    }
}

fn flag(json: &Json, key: &str) -> bool {
    json.get(key).and_then(Json::flag).unwrap_or(false)
}

fn integer(json: &Json, key: &str) -> Result<usize, String> {
    json.get(key).and_then(Json::integer).filter(|value| *value > 0).ok_or_else(|| format!("\"{key}\" is no positive integer"))
}

fn number(json: &Json, key: &str) -> Result<f64, String> {
    json.get(key).and_then(Json::number).ok_or_else(|| format!("\"{key}\" is no number"))
}

fn eps(json: &Json) -> Result<Eps, String> {
    match number(json, "rms_norm_eps")? {
        eps if eps == 1e-5 => Ok(Eps::E5),
        eps if eps == 1e-6 => Ok(Eps::E6),
        other => Err(format!("rms_norm_eps is {other}; llama.toml has norms for 1e-5 and 1e-6")),
    }
}

fn scaling(rope: &Json) -> Result<RopeScaling, String> {
    let kind = rope.get("rope_type").or_else(|| rope.get("type")).and_then(Json::text).unwrap_or("default");
    match kind {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: number(rope, "factor")? }),
        "llama3" => Ok(RopeScaling::Llama3 {
            factor: number(rope, "factor")?,
            low: number(rope, "low_freq_factor")?,
            high: number(rope, "high_freq_factor")?,
            original: number(rope, "original_max_position_embeddings")?,
        }),
        other => Err(format!("rotary embedding of type {other} is not supported")),
    }
}
