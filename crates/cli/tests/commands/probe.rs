//! `adit probe`: a table and a choice, remembered for the disk; files are only read. And what reads by it:
//! mirrors, buffered reads.

use adit_format::synth::{Family, Synth};

use crate::home::Home;

#[test]
fn a_file_is_measured_left_alone_and_the_choice_is_remembered() {
    let home = Home::new();
    let path = home.path("some.bin");
    let content: Vec<u8> = (0..5u32 << 20).map(|at| (at >> 7) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let said = home.run(&["probe", "some.bin", "--quick", "-o", "json"]);
    assert!(said.stderr.contains("remembered for this disk") && said.stderr.contains("flatter"), "{said:?}");
    let report: serde_json::Value = serde_json::from_str(&said.fine()).unwrap();
    let cells = report["cells"].as_array().unwrap();
    assert!(cells.len() == 6 || cells.len() == 12, "{report}");
    assert!(cells.iter().all(|cell| cell["bytes_per_s"].as_f64().unwrap() > 0.0), "{report}");
    assert!(report["bytes_per_s"].as_f64().unwrap() > 0.0, "{report}");
    assert!(std::fs::read(&path).unwrap() == content);
    let names = home.cached_names();
    assert!(names.len() == 1 && names[0].ends_with(".json"), "{names:?}");
    // Others know it now.
    Synth::new(Family::LlamaMoe).write(&home.path("tiny.gguf")).unwrap();
    let text = home.run(&["plan", "tiny.gguf", "--memory", "64M", "-c", "256"]).fine();
    assert!(text.contains("probed just now: reads of "), "{text}");
}

#[test]
fn a_table_has_a_row_for_each_size_and_a_choice() {
    let home = Home::new();
    std::fs::write(home.path("some.bin"), vec![7; 5 << 20]).unwrap();
    let text = home.run(&["probe", "some.bin", "--quick"]).fine();
    for word in ["256 KiB", "1 MiB", "4 MiB", "in flight", "choice: reads of", "page cache", "GB/s"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
}

#[test]
fn what_cannot_be_probed_is_named() {
    let home = Home::new();
    std::fs::write(home.path("tiny.bin"), "tiny").unwrap();
    for (name, told) in [("missing.bin", "cannot probe missing.bin"), ("tiny.bin", "tiny.bin")] {
        let error = home.run(&["probe", name, "--quick"]).failed(1);
        assert!(error.contains(told), "{error}");
    }
    assert!(home.cached_names().is_empty());
}

#[test]
fn a_mirror_and_buffered_reads_give_the_same_answer_and_another_model_is_refused() {
    let home = Home::new();
    let synth = Synth::new(Family::LlamaMoe);
    synth.write(&home.path("tiny.gguf")).unwrap();
    std::fs::copy(home.path("tiny.gguf"), home.path("copy.gguf")).unwrap();
    Synth { seed: 9, context: synth.context * 2, ..synth }.write(&home.path("other.gguf")).unwrap();
    let run = |more: &[&str]| {
        let arguments = ["run", "tiny.gguf", "--raw", "-p", "a", "-n", "8", "--temp", "0", "-c", "64"];
        home.run(&[&arguments[..], more].concat())
    };
    let answer = run(&[]).fine();
    for more in
        [&["--io", "buffered"][..], &["--mirror", "copy.gguf"], &["--io", "plain", "--mirror", "copy.gguf"]]
    {
        assert_eq!(run(more).fine(), answer, "{more:?}");
    }
    let error = run(&["--mirror", "other.gguf"]).failed(1);
    assert!(error.contains("other.gguf") && error.contains("mirror"), "{error}");
}
