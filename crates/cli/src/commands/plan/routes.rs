//! How many of a token's experts are found in memory, by the share of all experts that memory holds.

/// Share of all experts in slots, and share of their uses that `adit simulate` found there with the engine's
/// own policy: the mean of three routes of real models (Qwen3-30B-A3B, gpt-oss-120b, Kimi-Linear-48B-A3B),
/// 150 to 300 tokens from empty slots, so that with many slots the first uses are most of the misses.
/// `adit simulate ROUTE --policy default --residency 0.005,0.01,0.02,0.03,0.05,0.1,0.15,0.2,0.3,0.4,0.5`
const MEASURED: [(f64, f64); 12] = [
    (0.0, 0.0),
    (0.005, 0.094),
    (0.01, 0.172),
    (0.02, 0.276),
    (0.03, 0.348),
    (0.05, 0.450),
    (0.1, 0.591),
    (0.15, 0.669),
    (0.2, 0.725),
    (0.3, 0.799),
    (0.4, 0.839),
    (0.5, 0.859),
];

/// The hit rate where every expert is as likely as any other: the worst case.
pub fn uniform(residency: f64) -> f64 {
    residency
}

/// The hit rate of routes like those that were measured; never below uniform.
pub fn like_measured(residency: f64) -> f64 {
    let (last, most) = MEASURED[MEASURED.len() - 1];
    let above = MEASURED.iter().position(|&(share, _)| share >= residency);
    let measured = match above {
        Some(0) => MEASURED[0].1,
        Some(above) => {
            let ((from, low), (to, high)) = (MEASURED[above - 1], MEASURED[above]);
            low + (high - low) * (residency - from) / (to - from)
        }
        // From the last that says something on to everything in memory.
        None => most + (1.0 - most) * (residency - last) / (1.0 - last),
    };
    measured.max(uniform(residency))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hit_rates_rise_from_nothing_to_all_and_meet_what_was_measured() {
        for (share, rate) in MEASURED {
            assert!((like_measured(share) - rate).abs() < 1e-9);
        }
        let rates: Vec<f64> = (0..=1000).map(|share| like_measured(f64::from(share) / 1000.0)).collect();
        assert!(rates.is_sorted() && rates[0] == 0.0 && rates[1000] == 1.0);
        assert!((0..=1000).all(|share| rates[share] >= uniform(share as f64 / 1000.0)));
    }
}
