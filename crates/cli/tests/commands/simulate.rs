//! `adit simulate`: figures that can be worked out by hand, and traces that are no traces.

use crate::home::Home;

const ROUTE: &str = "# route_trace v1\n\
    # model=m.gguf arch=a n_layer=2 n_expert=4 n_expert_used=1\n\
    # layer=0 expert_bytes=2000000000 dense_bytes=7\n\
    # layer=1 expert_bytes=1000000000 dense_bytes=7\n\
    turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n\
    0,0,0,0,0,0,1,0,2000000000\n0,0,1,0,0,1,1,0,2000000000\n\
    0,0,0,1,0,3,1,0,1000000000\n0,0,1,1,0,3,1,0,1000000000\n\
    0,1,2,0,0,0,1,1,0\n0,1,2,1,0,3,1,0,1000000000\n";

const JSON_LINES: &str = "{\"tok\": 0, \"layers\": [[0], [3]]}\n{\"tok\": 1, \"layers\": [[1], [3]]}\n\
    {\"tok\": 2, \"layers\": [[0], [3]]}\n";

fn home() -> Home {
    let home = Home::new();
    std::fs::write(home.path("route.csv"), ROUTE).unwrap();
    std::fs::write(home.path("lines.jsonl"), JSON_LINES).unwrap();
    home
}

/// Packs `text` as gzip does.
fn gzip(text: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn hits_misses_bytes_and_the_gap_are_as_reckoned_by_hand() {
    let home = home();
    let asked = ["simulate", "route.csv", "lines.jsonl", "--slots", "2", "-o", "json"];
    let answer: serde_json::Value = serde_json::from_str(&home.run(&asked).fine()).unwrap();
    for (case, sizes) in answer["cases"].as_array().unwrap().iter().zip([true, false]) {
        assert_eq!((case["tokens"].as_u64(), case["layers"].as_u64()), (Some(3), Some(2)), "{case}");
        let of = |policy: &str| {
            let lines = case["policies"].as_array().unwrap();
            lines.iter().find(|line| line["policy"] == policy).unwrap_or_else(|| panic!("{policy}")).clone()
        };
        // Two slots: LRU hits expert 3 twice; so does the optimum, and 0 is gone in both.
        let lru = of("lru");
        assert_eq!(lru["hit_rate"].as_f64(), Some(2.0 / 6.0), "{case}");
        assert_eq!(lru["misses_per_token"].as_f64(), Some(4.0 / 3.0));
        assert_eq!(lru["gb_per_token"].as_f64(), sizes.then_some(7.0 / 3.0));
        for policy in ["lfu", "lfuda", "s3fifo", "default", "optimum"] {
            let rate = of(policy)["hit_rate"].as_f64().unwrap();
            assert!(rate <= of("optimum")["hit_rate"].as_f64().unwrap(), "{policy}");
        }
    }
}

#[test]
fn the_table_has_the_policies_and_sizes_that_were_asked_for() {
    let home = home();
    let table =
        home.run(&["simulate", "route.csv", "--residency", "0.25,0.5", "--policy", "default,lru"]).fine();
    assert!(table.contains("2 slots hold 25.0 %") && table.contains("4 slots hold 50.0 %"), "{table}");
    assert_eq!(table.matches("default").count(), 2, "{table}");
    assert!(!table.contains("optimum") && !table.contains("s3fifo"), "{table}");
    let table = home.run(&["simulate", "route.csv"]).fine();
    assert_eq!(table.matches("optimum").count(), 4, "{table}");
}

#[test]
fn a_packed_trace_is_the_same_trace() {
    let home = home();
    std::fs::write(home.path("packed"), gzip(ROUTE.as_bytes())).unwrap();
    let figures = |text: String| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let plain = figures(home.run(&["simulate", "route.csv", "--slots", "3"]).fine());
    assert_eq!(figures(home.run(&["simulate", "packed", "--slots", "3"]).fine()), plain);
}

#[test]
fn a_bad_trace_is_one_clear_error_and_no_figures() {
    let home = home();
    let packed = gzip(ROUTE.as_bytes());
    let mut flipped = packed.clone();
    flipped[packed.len() / 2] ^= 0x10;
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("binary", vec![0xff; 300]),
        ("cut.gz", packed[..packed.len() / 2].to_vec()),
        ("flipped.gz", flipped),
        ("cut.csv", ROUTE.as_bytes()[..ROUTE.len() - 12].to_vec()),
        ("cut.jsonl", JSON_LINES.as_bytes()[..JSON_LINES.len() - 4].to_vec()),
    ] {
        std::fs::write(home.path(name), bytes).unwrap();
        let error = home.run(&["simulate", "route.csv", name]).failed(1);
        assert!(error.contains(name), "{error}");
    }
    let error = home.run(&["simulate", "absent"]).failed(1);
    assert!(error.contains("absent"), "{error}");
}

#[test]
fn memory_becomes_slots_and_what_is_assumed_is_said() {
    let home = home();
    // 14 bytes for the layers' other weights, slots of 2 GB each.
    let table = home.run(&["simulate", "route.csv", "--memory", "7G,100G"]).fine();
    assert!(table.contains("3 slots hold 37.5 %") && table.contains("8 slots hold 100.0 %"), "{table}");
    assert!(table.contains("14 B of it for the layers' other weights"), "{table}");
    let error = home.run(&["simulate", "lines.jsonl", "--memory", "7G"]).failed(2);
    assert!(error.contains("--expert-bytes"), "{error}");
    let table = home.run(&["simulate", "lines.jsonl", "--memory", "7G", "--expert-bytes", "2G"]).fine();
    assert!(table.contains("3 slots hold 37.5 %") && table.contains("all of it for experts"), "{table}");
}

#[test]
fn a_token_takes_what_takes_longer_or_at_worst_both() {
    let home = home();
    let rates = |extra: &[&str]| {
        let asked = ["simulate", "route.csv", "--slots", "2", "--policy", "lru", "-o", "json"];
        let answer = home.run(&[&asked[..], extra].concat()).fine();
        let case = serde_json::from_str::<serde_json::Value>(&answer).unwrap()["cases"][0].clone();
        assert_eq!(case["disk_source"], "given");
        let line = &case["policies"][0];
        ["expected_tok_per_s", "pessimistic_tok_per_s"].map(|key| line[key].as_f64().unwrap())
    };
    let near = |found: [f64; 2], expected: [f64; 2]| {
        let close = found.iter().zip(expected).all(|(found, expected)| (found / expected - 1.0).abs() < 1e-9);
        assert!(close, "{found:?} instead of {expected:?}");
    };
    let table = home.run(&["simulate", "route.csv", "--slots", "2"]).fine();
    assert!(table.contains("1.00 GB/s (assumed"), "no disk was probed: {table}");
    // 7/3 GB a token.
    near(rates(&["--disk", "7"]), [3.0, 3.0]);
    near(rates(&["--disk", "7", "--compute", "500"]), [2.0, 1.2]);
    near(rates(&["--disk", "7", "--compute", "100"]), [3.0, 1.0 / (1.0 / 3.0 + 0.1)]);
}

#[test]
fn a_page_stands_alone_and_shows_every_trace() {
    let home = home();
    home.run(&["simulate", "route.csv", "lines.jsonl", "--html", "page.html"]).fine();
    let page = std::fs::read_to_string(home.path("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    for part in ["route.csv", "lines.jsonl", "one token cycle", "layer 1, expert 3: 3", "optimum", "s3fifo"] {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["http:", "https:", "<script", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    // Sizes are known of one of the two only, and with them the speed.
    assert_eq!(page.matches("Expected tokens a second").count(), 1);
    // Every element that is opened is closed.
    for element in ["svg", "table", "tr", "td", "p", "h2", "h3", "title", "text", "body", "html", "style"] {
        let opened =
            page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
        assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
    }
    home.run(&["simulate", "route.csv", "--html", "nowhere/page.html"]).failed(1);
}

#[test]
fn nonsense_is_wrong_usage() {
    let home = home();
    for extra in [
        ["--slots", "0"],
        ["--slots", "9"],
        ["--slots", "-1"],
        ["--residency", "0"],
        ["--residency", "1.5"],
        ["--residency", "nan"],
        ["--policy", "best"],
        ["-o", "html"],
        ["--memory", "0"],
        ["--memory", "1M"],
        ["--disk", "0"],
        ["--disk", "-1"],
        ["--compute", "nan"],
    ] {
        home.run(&["simulate", "route.csv", extra[0], extra[1]]).failed(2);
    }
    home.run(&["simulate"]).failed(2);
    home.run(&["simulate", "route.csv", "--slots", "2", "--residency", "0.5"]).failed(2);
}
