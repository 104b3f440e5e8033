//! Tensors of safetensors files, read one at a time.
use crate::json::Json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Where a tensor lies.
struct Place {
    file: PathBuf,
    dtype: String,
    shape: Vec<usize>,
    begin: u64,
    bytes: usize,
}

/// The tensors of model.safetensors, or of the parts that model.safetensors.index.json names.
pub struct Checkpoint {
    places: BTreeMap<String, Place>,
}

impl Checkpoint {
    /// `folder` as transformers saves it. Errors name the file.
    pub fn open(folder: &Path) -> Result<Checkpoint, String> {
        let mut places = BTreeMap::new();
        for part in parts(folder)? {
            let file = folder.join(part);
            read_header(&file, &mut places).map_err(|why| format!("{}: {why}", file.display()))?;
        }
        Ok(Checkpoint { places })
    }

    /// The numbers of a tensor of F32, BF16 or F16, which has this shape.
    pub fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let place = self.places.get(name).ok_or_else(|| format!("the checkpoint has no tensor {name}"))?;
        if place.shape != shape {
            return Err(format!("{name} is {:?} where config.json asks for {shape:?}", place.shape));
        }
        let width = if place.dtype == "F32" { 4 } else { 2 };
        if place.bytes != width * shape.iter().product::<usize>() {
            return Err(format!("{name} has another number of bytes than its shape"));
        }
        let stored = read_at(&place.file, place.begin, place.bytes).map_err(|why| format!("{}: {why}", place.file.display()))?;
        let halves = || stored.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
        match place.dtype.as_str() {
            "F32" => Ok(stored.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()),
            "BF16" => Ok(halves().map(|bits| f32::from_bits(u32::from(bits) << 16)).collect()),
            "F16" => Ok(halves().map(from_float16).collect()),
            other => Err(format!("{name} is of type {other}: F32, BF16 and F16 are read")),
        }
    }
}

fn from_float16(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    match exponent {
        0 => sign * fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

fn parts(folder: &Path) -> Result<BTreeSet<String>, String> {
    let index = folder.join("model.safetensors.index.json");
    let Ok(text) = fs::read(&index) else {
        return Ok(BTreeSet::from(["model.safetensors".to_string()]));
    };
    let parsed = Json::parse(&text).map_err(|why| format!("{}: {why}", index.display()))?;
    match parsed.get("weight_map") {
        Some(Json::Object(names)) => Ok(names.values().filter_map(|name| name.text().map(str::to_string)).collect()),
        _ => Err(format!("{} has no \"weight_map\"", index.display())),
    }
}

fn read_at(file: &Path, begin: u64, bytes: usize) -> Result<Vec<u8>, String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut open = File::open(file)?;
        open.seek(SeekFrom::Start(begin))?;
        let mut data = vec![0; bytes];
        open.read_exact(&mut data)?;
        Ok(data)
    };
    read().map_err(|error| error.to_string())
}

/// The header is JSON behind its length in 8 bytes.
fn read_header(file: &Path, places: &mut BTreeMap<String, Place>) -> Result<(), String> {
    let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
    let mut first = [0; 8];
    first.copy_from_slice(&read_at(file, 0, 8)?);
    let length = u64::from_le_bytes(first);
    if length > size.saturating_sub(8) {
        return Err("not a safetensors file: the header is longer than the file".to_string());
    }
    let Json::Object(entries) = Json::parse(&read_at(file, 8, length as usize)?)? else {
        return Err("the header is no object".to_string());
    };
    for (name, entry) in entries.into_iter().filter(|(name, _)| name != "__metadata__") {
        let place = read_entry(file, &entry, 8 + length, size).ok_or_else(|| format!("{name} is malformed or leaves the file"))?;
        places.insert(name, place);
    }
    Ok(())
}

fn read_entry(file: &Path, entry: &Json, data: u64, size: u64) -> Option<Place> {
    let span = entry.get("data_offsets")?.integers()?;
    let &[begin, end] = span.as_slice() else { return None };
    let (from, to) = (data + begin as u64, data + end as u64);
    (from <= to && to <= size).then_some(())?;
    Some(Place {
        file: file.to_path_buf(),
        dtype: entry.get("dtype")?.text()?.to_string(),
        shape: entry.get("shape")?.integers()?,
        begin: from,
        bytes: end - begin,
    })
}
