//! Writes a synthetic model, for comparing adit with other programs:
//! `cargo run -p adit-format --example synth -- MODEL TYPE OUT.gguf [SEED]`, for instance `Qwen3Moe Q4_K`.
//! MODEL is a family of `synth::Family` or a name of `synth::zoo::ZOO`, which `-- list` prints.

use std::error::Error;
use std::path::Path;

use adit_format::TensorType;
use adit_format::synth::zoo::{Animal, ZOO};
use adit_format::synth::{Family, Synth};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["list"] {
        ZOO.iter().for_each(|animal| println!("{}", animal.name));
        return Ok(());
    }
    let [model, kind, out, seed @ ..] = arguments.as_slice() else {
        return Err("expected MODEL TYPE OUT.gguf [SEED], or list".into());
    };
    let kind = TensorType::ALL
        .into_iter()
        .find(|known| known.name().eq_ignore_ascii_case(kind))
        .ok_or_else(|| format!("unknown type {kind}"))?;
    let seed = seed.first().map_or(Ok(1), |seed| seed.parse())?;
    if let Some(animal) = Animal::find(model) {
        animal.write(kind, seed, Path::new(out))?;
        return Ok(());
    }
    let family = Family::ALL
        .into_iter()
        .find(|known| format!("{known:?}").eq_ignore_ascii_case(model))
        .ok_or_else(|| format!("unknown model {model}; known are {:?} and those of list", Family::ALL))?;
    let path = Synth { seed, ..Synth::new(family).of_type(kind) }.write(Path::new(out))?;
    println!("{}", path.display());
    Ok(())
}
