//! Hints: reads of members that a later call may ask for. Owns the wishes that are still to be read, the
//! members that were read on a wish and wait to be judged, and an account for each source of wishes. Must
//! not know why a source foresees what it does, nor how a slot is found.

use std::time::Instant;

/// How many sources of hints a pager keeps accounts for.
pub const SOURCES_MAX: usize = 4;

/// Tokens after which an account is looked at.
const WINDOW_TOKENS: u64 = 32;
/// Tokens that a source is off for the first time it cost more than it gained; doubled each time it does so
/// again, up to the greatest pause.
const PAUSE_TOKENS: u64 = 128;
const PAUSE_TOKENS_MAX: u64 = 8192;

/// What a source's hints have brought and cost since the pager was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintAccount {
    /// Members that were read, or began to be, before anybody asked for them.
    pub issued: u64,
    /// Of these, members that were asked for by the call they were meant for.
    pub used: u64,
    /// Of these, members that were not.
    pub wasted: u64,
    /// Bytes of the members issued, and of those wasted.
    pub bytes: u64,
    pub wasted_bytes: u64,
    /// Wishes that found no slot whose member may leave.
    pub refused: u64,
    /// Reading time that was over before the members were asked for: an estimate from the disk's speed.
    pub saved_ns: u64,
    /// Reading time of wasted members while the engine waited for the disk: an estimate as well.
    pub lost_ns: u64,
    /// Time that the source took to foresee.
    pub spent_ns: u64,
    /// How often it was switched off because it cost more than it gained.
    pub switched_off: u64,
}

impl HintAccount {
    fn gained_ns(&self) -> i128 {
        i128::from(self.saved_ns) - i128::from(self.lost_ns) - i128::from(self.spent_ns)
    }
}

/// A source and its verdict.
#[derive(Clone, Copy, Debug)]
struct Source {
    account: HintAccount,
    /// What it had gained when the window began, and the token of that.
    gained_before: i128,
    window_from: u64,
    /// It is off until this token.
    off_until: u64,
    pause: u64,
}

/// A member that is wanted before anybody asks for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wish {
    pub source: u8,
    pub group: u32,
    pub member: u32,
    /// When it will be asked for, in tokens, as policies reckon.
    pub due: f64,
    /// The number of that call.
    pub call: u32,
}

/// A slot that was filled on a wish and is not judged yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brought {
    pub wish: Wish,
    pub slot: u32,
    pub bytes: u64,
    issued: Instant,
    /// Time that the engine had waited for the disk by then.
    waited_ns: u64,
    /// It was wasted, but its reads are still under way.
    is_late: bool,
}

pub(crate) struct Hints {
    /// Not begun yet, the first to be read first.
    wishes: Vec<Wish>,
    /// Begun and not judged, or still being read. Never longer than there are slots.
    brought: Vec<Brought>,
    sources: [Source; SOURCES_MAX],
    token: u64,
}

impl Hints {
    /// For `slots` slots and groups of up to `widest` members.
    pub(crate) fn new(slots: usize, widest: usize) -> Hints {
        let source = Source {
            account: HintAccount::default(),
            gained_before: 0,
            window_from: 0,
            off_until: 0,
            pause: PAUSE_TOKENS,
        };
        Hints {
            wishes: Vec::with_capacity(SOURCES_MAX * widest),
            brought: Vec::with_capacity(slots),
            sources: [source; SOURCES_MAX],
            token: 0,
        }
    }

    pub(crate) fn heap_bytes(slots: usize, widest: usize) -> usize {
        SOURCES_MAX * widest * size_of::<Wish>() + slots * size_of::<Brought>()
    }

    pub(crate) fn accounts(&self) -> [HintAccount; SOURCES_MAX] {
        self.sources.map(|source| source.account)
    }

    pub(crate) fn is_on(&self, source: usize) -> bool {
        self.token >= self.sources[source].off_until
    }

    /// Replaces the source's wishes, and those of others for the same group.
    pub(crate) fn wish(&mut self, source: usize, group: usize, members: &[u32], (due, call): (f64, u32)) {
        let (source, group) = (source as u8, group as u32);
        self.wishes.retain(|wish| wish.source != source && wish.group != group);
        let room = self.wishes.capacity() - self.wishes.len();
        let wishes = members.iter().map(|&member| Wish { source, group, member, due, call });
        self.wishes.extend(wishes.take(room));
    }

    /// Nobody has to wish for members of `group` any more.
    pub(crate) fn forget_wishes(&mut self, group: usize) {
        self.wishes.retain(|wish| wish.group != group as u32);
    }

    pub(crate) fn next_wish(&self) -> Option<Wish> {
        self.wishes.first().copied()
    }

    pub(crate) fn drop_wish(&mut self) {
        self.wishes.remove(0);
    }

    pub(crate) fn refuse(&mut self, wish: Wish) {
        self.sources[wish.source as usize].account.refused += 1;
    }

    pub(crate) fn begun(&mut self, wish: Wish, slot: u32, bytes: u64, waited_ns: u64) {
        let account = &mut self.sources[wish.source as usize].account;
        account.issued += 1;
        account.bytes += bytes;
        self.brought.push(Brought { wish, slot, bytes, issued: Instant::now(), waited_ns, is_late: false });
    }

    pub(crate) fn brought(&self) -> &[Brought] {
        &self.brought
    }

    /// Takes out one member that is to be judged: of `group`, or overdue at the time `now`.
    pub(crate) fn take_due(&mut self, group: Option<usize>, now: f64) -> Option<Brought> {
        let is_due = |brought: &Brought| {
            !brought.is_late
                && (group.is_some_and(|group| brought.wish.group == group as u32) || brought.wish.due < now)
        };
        let at = self.brought.iter().position(is_due)?;
        Some(self.brought.remove(at))
    }

    /// Puts a wasted member back until its reads are over.
    pub(crate) fn put_back(&mut self, brought: Brought) {
        self.brought.push(Brought { is_late: true, ..brought });
    }

    /// Takes out one wasted member of which `is_over` says that its reads are over.
    pub(crate) fn take_late(&mut self, is_over: impl Fn(u32) -> bool) -> Option<Brought> {
        let at = self.brought.iter().position(|brought| brought.is_late && is_over(brought.slot))?;
        Some(self.brought.remove(at))
    }

    /// The slot is asked for: it is an ordinary one from now on.
    pub(crate) fn release(&mut self, slot: u32) {
        self.brought.retain(|brought| brought.slot != slot);
    }

    /// `waited_ns`: as in `begun`, by now. `reading_ns`: what the disk takes for the member's bytes.
    pub(crate) fn judge(&mut self, brought: Brought, used: bool, waited_ns: u64, reading_ns: u64) {
        let account = &mut self.sources[brought.wish.source as usize].account;
        if used {
            account.used += 1;
            account.saved_ns += reading_ns.min(brought.issued.elapsed().as_nanos() as u64);
        } else {
            account.wasted += 1;
            account.wasted_bytes += brought.bytes;
            account.lost_ns += reading_ns.min(waited_ns - brought.waited_ns);
        }
    }

    pub(crate) fn charge(&mut self, source: usize, spent_ns: u64) {
        self.sources[source].account.spent_ns += spent_ns;
    }

    /// A token is over: sources whose window is full are judged.
    pub(crate) fn tick(&mut self) {
        self.token += 1;
        for source in &mut self.sources {
            if self.token < source.off_until {
                source.window_from = source.off_until;
            } else if self.token >= source.window_from + WINDOW_TOKENS {
                let gained = source.account.gained_ns();
                if gained < source.gained_before {
                    source.off_until = self.token + source.pause;
                    source.pause = (2 * source.pause).min(PAUSE_TOKENS_MAX);
                    source.account.switched_off += 1;
                } else {
                    source.pause = PAUSE_TOKENS;
                }
                (source.gained_before, source.window_from) = (gained, self.token);
            }
        }
    }
}
