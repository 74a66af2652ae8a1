//! States of recurrent layers: what a lane carries from position to position, and snapshots of it.
//!
//! A state cannot go back by a position, and a conversation does: a reply is dropped or rendered anew. So a
//! few earlier states are kept, and what is behind the newest that fits is computed again. Knows no formula.

use adit_pager::AlignedBuf;

use crate::config::Config;
use crate::error::ModelError;

/// Snapshots of a lane where memory allows: the ends of this prompt and of those before it.
pub const SNAPSHOTS_MAX: usize = 4;

/// The shape of all states; its size in bytes is a term of the plan.
#[derive(Debug, Clone)]
pub struct StateShape {
    /// Values of each layer's state; 0 where it has none.
    pub layers: Vec<usize>,
    pub lanes: usize,
    /// Snapshots of each lane.
    pub snapshots: usize,
}

impl StateShape {
    /// Without snapshots.
    pub fn new(config: &Config, lanes: usize) -> StateShape {
        let floats =
            config.layers.iter().map(|layer| layer.mixer.recurrent().map_or(0, |it| it.state_floats()));
        StateShape { layers: floats.collect(), lanes, snapshots: 0 }
    }

    /// Bytes of one lane's state in all layers.
    pub fn lane_bytes(&self) -> usize {
        self.floats() * size_of::<f32>()
    }

    /// Bytes of so many snapshots of each lane.
    pub fn snapshot_bytes(&self, count: usize) -> u64 {
        (count * self.lanes * self.lane_bytes()) as u64
    }

    /// Layers that have a state.
    pub fn recurrent_layers(&self) -> usize {
        self.layers.iter().filter(|&&floats| floats > 0).count()
    }

    fn floats(&self) -> usize {
        self.layers.iter().sum()
    }
}

/// The states of all lanes.
pub(crate) struct States {
    /// For each lane its state, then its snapshots.
    values: AlignedBuf,
    /// Where each layer begins in a state; behind the last its length.
    starts: Vec<usize>,
    lanes: Vec<Lane>,
}

/// Which positions a lane's snapshots stand before; the places of forgotten ones are free.
struct Lane {
    snapshots: Vec<Option<usize>>,
}

impl States {
    /// All lanes at their beginning.
    pub fn new(shape: &StateShape, lanes: usize) -> Result<States, ModelError> {
        let mut starts = vec![0];
        for &floats in &shape.layers {
            starts.push(starts.last().unwrap_or(&0) + floats);
        }
        let places = lanes * (1 + shape.snapshots);
        let lane = || Lane { snapshots: vec![None; shape.snapshots] };
        Ok(States {
            values: AlignedBuf::new(places * shape.lane_bytes())?,
            starts,
            lanes: (0..lanes).map(|_| lane()).collect(),
        })
    }

    fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Where the state of a lane begins, and its snapshots behind it.
    fn place(&self, lane: usize) -> usize {
        lane * (1 + self.lanes[lane].snapshots.len()) * self.len()
    }

    /// The state of one layer.
    pub fn of(&mut self, layer: usize, lane: usize) -> &mut [f32] {
        let place = self.place(lane);
        let (start, end) = (self.starts[layer], self.starts[layer + 1]);
        &mut self.values.as_f32_mut()[place + start..place + end]
    }

    /// Keeps a copy of the lane's state before position `at`; the oldest makes room.
    pub fn snapshot(&mut self, lane: usize, at: usize) {
        let (len, place) = (self.len(), self.place(lane));
        let snapshots = &mut self.lanes[lane].snapshots;
        if len == 0 || at == 0 || snapshots.contains(&Some(at)) {
            return;
        }
        // Free places are less than any position.
        let Some((index, oldest)) = snapshots.iter_mut().enumerate().min_by_key(|(_, at)| **at) else {
            return;
        };
        *oldest = Some(at);
        self.values.as_f32_mut().copy_within(place..place + len, place + (1 + index) * len);
    }

    /// Goes back to the newest snapshot at or before position `to`, or to the beginning; returns where it
    /// stands. A lane without a state goes wherever it is told.
    pub fn rewind(&mut self, lane: usize, to: usize) -> usize {
        let (len, place) = (self.len(), self.place(lane));
        if len == 0 {
            return to;
        }
        let snapshots = &mut self.lanes[lane].snapshots;
        for at in snapshots.iter_mut() {
            *at = at.filter(|&at| at <= to);
        }
        let newest = snapshots.iter().copied().enumerate().max_by_key(|&(_, at)| at);
        let values = self.values.as_f32_mut();
        match newest {
            Some((index, Some(at))) => {
                let from = place + (1 + index) * len;
                values.copy_within(from..from + len, place);
                at
            }
            _ => {
                values[place..place + len].fill(0.0);
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(snapshots: usize) -> States {
        States::new(&StateShape { layers: vec![2, 0, 1], lanes: 2, snapshots }, 2).unwrap()
    }

    fn set(states: &mut States, lane: usize, value: f32) {
        states.of(0, lane).fill(value);
        states.of(2, lane).fill(-value);
    }

    #[test]
    fn a_lane_goes_back_to_its_newest_snapshot_that_is_old_enough() {
        let mut states = states(2);
        for (at, value) in [(64, 1.0), (128, 2.0), (192, 3.0)] {
            set(&mut states, 1, value);
            states.snapshot(1, at);
        }
        set(&mut states, 1, 4.0);
        assert_eq!(states.rewind(1, 200), 192);
        assert_eq!((states.of(0, 1).to_vec(), states.of(2, 1).to_vec()), (vec![3.0; 2], vec![-3.0]));
        assert_eq!(states.rewind(1, 191), 128);
        assert_eq!(states.of(0, 1), [2.0; 2]);
        // The oldest of three has made room, and those behind are of another timeline now.
        assert_eq!(states.rewind(1, 127), 0);
        assert_eq!(states.of(0, 1), [0.0; 2]);
        assert_eq!(states.rewind(1, 500), 0);
    }

    #[test]
    fn lanes_do_not_touch_each_other() {
        let mut states = states(1);
        set(&mut states, 0, 1.0);
        states.snapshot(0, 64);
        set(&mut states, 1, 2.0);
        states.snapshot(1, 70);
        assert_eq!(states.rewind(0, 64), 64);
        assert_eq!((states.of(0, 0)[0], states.of(2, 1)[0]), (1.0, -2.0));
    }

    #[test]
    fn without_snapshots_a_lane_begins_anew() {
        let mut states = states(0);
        set(&mut states, 0, 1.0);
        states.snapshot(0, 64);
        assert_eq!(states.rewind(0, 64), 0);
        assert_eq!(states.of(2, 0), [0.0]);
    }

    #[test]
    fn a_model_without_states_goes_wherever_it_is_told() {
        let mut states = States::new(&StateShape { layers: vec![0; 3], lanes: 1, snapshots: 2 }, 1).unwrap();
        states.snapshot(0, 64);
        assert_eq!(states.rewind(0, 37), 37);
    }
}
