//! Writes a synthetic model, for comparing adit with other programs:
//! `cargo run -p adit-format --example synth -- FAMILY TYPE OUT.gguf [SEED]`, for instance `Qwen3Moe Q4_K`.

use std::error::Error;
use std::path::Path;

use adit_format::TensorType;
use adit_format::synth::{Family, Synth};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [family, kind, out, seed @ ..] = arguments.as_slice() else {
        return Err("expected FAMILY TYPE OUT.gguf [SEED]".into());
    };
    let family = Family::ALL
        .into_iter()
        .find(|known| format!("{known:?}").eq_ignore_ascii_case(family))
        .ok_or_else(|| format!("unknown family {family}; known are {:?}", Family::ALL))?;
    let kind = TensorType::ALL
        .into_iter()
        .find(|known| known.name().eq_ignore_ascii_case(kind))
        .ok_or_else(|| format!("unknown type {kind}"))?;
    let seed = seed.first().map_or(Ok(1), |seed| seed.parse())?;
    let path = Synth { seed, ..Synth::new(family).of_type(kind) }.write(Path::new(out))?;
    println!("{}", path.display());
    Ok(())
}
