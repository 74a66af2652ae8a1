//! The backbone holds the true bytes of every extent, each byte of the files read and held once.

mod common;

use adit_pager::{Backbone, Extent, IoKind, PagerError, SimConfig};
use common::{Disk, backends, simulated};

fn extent(file: u32, offset: u64, bytes: u64) -> Extent {
    Extent { file, offset, bytes }
}

fn load(disk: &Disk, io: &IoKind, extents: &[Extent]) -> Result<Backbone, PagerError> {
    Backbone::load(&disk.open(io), extents, &mut |_| {})
}

#[test]
fn every_byte_is_true_on_every_backend() {
    let disk = Disk::new(&[9_000_001, 70_001]);
    let extents = [
        extent(1, 69_000, 1001),  // to the end of its file
        extent(0, 32, 5_000_000), // longer than one read
        extent(0, 5_000_032, 7),  // its neighbour
        extent(1, 0, 1),
        extent(0, 8_999_999, 2),
        extent(0, 100, 4000), // inside another
        extent(1, 30_000, 0), // nothing
        extent(0, 5_100_000, 3_000_000),
    ];
    for (name, io) in backends() {
        let files = disk.open(&io);
        let mut told = Vec::new();
        let backbone = Backbone::load(&files, &extents, &mut |bytes| told.push(bytes)).unwrap();
        assert_eq!(backbone.len(), extents.len());
        for (i, extent) in extents.iter().enumerate() {
            let start = extent.offset as usize;
            let expected = &disk.contents[extent.file as usize][start..start + extent.bytes as usize];
            assert!(backbone.bytes(i) == expected, "{name}: extent {i}");
            if extent.bytes > 0 {
                let page = adit_pager::PAGE_BYTES;
                let address = backbone.bytes(i).as_ptr() as usize;
                assert_eq!(address % page, start % page, "{name}: as aligned as in the file");
            }
        }
        assert!(told.is_sorted() && told.len() > 1, "{name}: {told:?}");
        assert_eq!(told.last(), Some(&Backbone::bytes_needed(&files, &extents)), "{name}");
    }
}

#[test]
fn neighbours_share_their_pages() {
    let disk = Disk::new(&[100_000]);
    let files = disk.open(&IoKind::Auto);
    // 100 pieces of one range need what the range needs.
    let pieces: Vec<Extent> = (0..100).map(|i| extent(0, i * 1000, 1000)).collect();
    let needed = Backbone::bytes_needed(&files, &pieces);
    assert_eq!(needed, Backbone::bytes_needed(&files, &[extent(0, 0, 100_000)]));
    assert_eq!(needed, 100_000u64.next_multiple_of(files.align()));
}

#[test]
fn many_small_distant_extents_fit_into_one_chunk() {
    let disk = Disk::new(&[4_000_000]);
    let extents: Vec<Extent> = (0..450).map(|i| extent(0, i * 8500 + 3, 9)).collect();
    for (name, io) in backends() {
        let backbone = load(&disk, &io, &extents).unwrap();
        for (i, extent) in extents.iter().enumerate() {
            let start = extent.offset as usize;
            assert_eq!(backbone.bytes(i), &disk.contents[0][start..start + 9], "{name}: extent {i}");
        }
    }
}

#[test]
fn nothing_is_loaded_from_nothing() {
    let disk = Disk::new(&[0, 10]);
    for (_, io) in backends() {
        assert!(load(&disk, &io, &[]).unwrap().is_empty());
        assert_eq!(load(&disk, &io, &[extent(0, 0, 0)]).unwrap().bytes(0), b"");
    }
}

#[test]
fn an_extent_beyond_its_file_is_refused_by_name() {
    let disk = Disk::new(&[1000]);
    for wrong in [extent(0, 1000, 1), extent(0, 1 << 60, 5), extent(0, u64::MAX, 2), extent(0, 3, u64::MAX)] {
        let Err(error) = load(&disk, &IoKind::Auto, &[wrong]) else { panic!("{wrong:?} was accepted") };
        let text = error.to_string();
        assert!(text.contains("0.bin") && text.contains("1000"), "{text}");
    }
}

#[test]
fn a_broken_place_fails_the_load_with_file_and_offset() {
    let disk = Disk::new(&[50_000, 9_000_000]);
    let broken = vec![extent(1, 4_200_000, 1)];
    let io = simulated(SimConfig { broken, ..SimConfig::default() });
    let Err(error) = load(&disk, &io, &[extent(0, 0, 50_000), extent(1, 0, 9_000_000)]) else {
        panic!("the broken place was read");
    };
    let text = error.to_string();
    assert!(text.contains("1.bin") && text.contains("4194304") && text.contains("os error 5"), "{text}");
}
