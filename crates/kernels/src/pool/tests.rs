//! The pool does all the work once, whoever comes, and survives panics.

use std::sync::atomic::AtomicUsize;

use super::*;

#[test]
fn every_row_is_visited_once_with_any_number_of_threads() {
    for threads in [1, 2, 3, 4, 64] {
        let pool = Pool::new(threads);
        for rows in [1, 2, 7, 64, 1000] {
            let mut data = vec![0u32; rows * 3];
            pool.rows(&mut data, 3, |row, part| part.iter_mut().for_each(|cell| *cell += row as u32 + 1));
            assert!(data.chunks(3).enumerate().all(|(row, part)| part == [row as u32 + 1; 3]));
        }
    }
}

#[test]
fn helpers_come_back_for_job_after_job() {
    let pool = Pool::new(4);
    let sum = AtomicUsize::new(0);
    for _ in 0..2000 {
        let next = AtomicUsize::new(0);
        pool.run(&|worker| {
            assert!(worker < 4);
            while let piece @ 0..16 = next.fetch_add(1, Ordering::Relaxed) {
                sum.fetch_add(piece, Ordering::Relaxed);
            }
        });
    }
    assert_eq!(sum.load(Ordering::Relaxed), 2000 * 120);
}

#[test]
fn a_worker_number_is_never_used_twice_at_once() {
    let pool = Pool::new(4);
    let inside: [AtomicBool; 4] = Default::default();
    for _ in 0..500 {
        pool.run(&|worker| {
            assert!(!inside[worker].swap(true, Ordering::SeqCst));
            std::hint::black_box((0..100).sum::<u64>());
            inside[worker].store(false, Ordering::SeqCst);
        });
    }
}

#[test]
fn a_panic_in_any_piece_reaches_the_caller_and_the_pool_lives_on() {
    let pool = Pool::new(3);
    for piece in [0, 50, 99] {
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.ranges(100, 1, |_, range| assert!(range.start != piece, "on purpose"));
        }));
        assert!(result.is_err(), "piece {piece}");
        let count = AtomicUsize::new(0);
        pool.ranges(100, 1, |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 100);
    }
}

#[test]
fn a_job_inside_a_job_is_done_by_its_caller() {
    let pool = Pool::new(2);
    let count = AtomicUsize::new(0);
    pool.ranges(4, 1, |_, _| {
        pool.ranges(5, 1, |worker, _| {
            assert_eq!(worker, 0);
            count.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(count.load(Ordering::Relaxed), 20);
}
