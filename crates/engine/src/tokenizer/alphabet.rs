//! The alphabet of byte-level BPE: 256 printable characters that stand for the 256 bytes, so that a
//! vocabulary of any bytes can be written as text (GPT-2, `bytes_to_unicode`). Knows no vocabulary.

/// The character that stands for `byte`: itself where Latin-1 prints it, else one from U+0100 on.
pub(super) fn char_of(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u32::from(byte),
        0x00..=0x20 => 0x100 + u32::from(byte),
        0x7F..=0xA0 => 0x121 + u32::from(byte - 0x7F),
        0xAD => 0x143,
    };
    char::from_u32(code).expect("all codes lie below U+0144")
}

/// The byte that `letter` stands for, if it belongs to the alphabet.
pub(super) fn byte_of(letter: char) -> Option<u8> {
    Some(match u32::from(letter) {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => code as u8,
        code @ 0x100..=0x120 => (code - 0x100) as u8,
        code @ 0x121..=0x142 => (code - 0x121 + 0x7F) as u8,
        0x143 => 0xAD,
        _ => return None,
    })
}

/// Appends the bytes that `text` stands for; false, and nothing appended, where it is not of this alphabet.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let before = out.len();
    let Ok(text) = std::str::from_utf8(text) else { return false };
    for letter in text.chars() {
        let Some(byte) = byte_of(letter) else {
            out.truncate(before);
            return false;
        };
        out.push(byte);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_letter_and_comes_back() {
        let letters: std::collections::HashSet<char> = (0..=255).map(char_of).collect();
        assert_eq!(letters.len(), 256);
        for byte in 0..=255 {
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
        assert_eq!((char_of(b' '), char_of(b'\n'), char_of(0xAD)), ('Ġ', 'Ċ', 'Ń'));
        assert_eq!(byte_of('▁'), None);
    }

    #[test]
    fn text_outside_the_alphabet_is_refused_whole() {
        let mut out = b"before".to_vec();
        assert!(!decode("aĠ▁".as_bytes(), &mut out));
        assert!(!decode(b"\xFF", &mut out));
        assert!(decode("aĠ".as_bytes(), &mut out));
        assert_eq!(out, b"beforea ");
    }
}
