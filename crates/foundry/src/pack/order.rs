//! In which order the experts of a layer are stored: those that tokens often use together as neighbours.
//! Arithmetic over recorded uses; knows no files.

/// Orders the experts `0..experts` of one layer by `uses`, each the experts of one token: a chain that begins
/// with the most used one and goes on with whichever was most often used together with the last. Equals stand
/// in the order of their numbers; without uses nothing changes.
pub fn by_co_use<'a>(experts: usize, uses: impl Iterator<Item = &'a [u32]>) -> Vec<u32> {
    let mut single = vec![0u32; experts];
    let mut together = vec![0u32; experts * experts];
    for used in uses {
        for &a in used {
            single[a as usize] += 1;
            for &b in used.iter().filter(|&&b| b != a) {
                together[a as usize * experts + b as usize] += 1;
            }
        }
    }
    let mut left: Vec<usize> = (0..experts).collect();
    let mut order = Vec::with_capacity(experts);
    while !left.is_empty() {
        let with_last = |expert: usize| match order.last() {
            Some(&last) => together[last as usize * experts + expert],
            None => 0,
        };
        let worth = |at: &usize| (with_last(left[*at]), single[left[*at]], std::cmp::Reverse(*at));
        let best = (0..left.len()).max_by_key(worth).expect("some are left");
        order.push(left.remove(best) as u32);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_used_together_become_neighbours() {
        let uses: [&[u32]; 6] = [&[1, 4], &[4, 1], &[4, 0], &[1, 4], &[2, 5], &[5, 2]];
        let order = by_co_use(6, uses.into_iter());
        assert_eq!(order, [4, 1, 2, 5, 0, 3]);
    }

    #[test]
    fn without_uses_the_order_stays() {
        assert_eq!(by_co_use(4, std::iter::empty()), [0, 1, 2, 3]);
        assert!(by_co_use(0, std::iter::empty()).is_empty());
    }
}
