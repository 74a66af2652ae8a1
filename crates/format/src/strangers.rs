//! Says what a file is that is not a GGUF file of ours, and what to do about it.
//! Looks at the first bytes only.

/// Bytes of the start of a file that [`recognise`] wants to see, or fewer where the file is shorter.
pub(crate) const HEAD_BYTES: usize = 512;

/// What to tell the owner of a file whose first bytes are `head`; `None` if they are a GGUF magic.
pub(crate) fn recognise(head: &[u8]) -> Option<String> {
    if head.starts_with(b"GGUF") {
        return None;
    }
    let known = if head.is_empty() {
        "the file is empty: its download failed; download it again"
    } else if head.iter().all(|&byte| byte == 0) {
        "the file starts with zeros: it was reserved but not (fully) downloaded; download it again"
    } else if is_html(head) {
        "this is a web page (HTML), not a model: the link led to a login or error page; \
         use the direct download link of the .gguf file"
    } else if head.starts_with(b"version https://git-lfs") {
        "this is a Git LFS pointer, not the model itself; run `git lfs pull`, or download the file directly"
    } else if is_safetensors(head) {
        "this is a safetensors file; convert it to GGUF, or download the model in GGUF form"
    } else if text_start(head).starts_with(b"{") {
        "this is JSON, not a model: probably the error message of a server; open it in an editor to read it"
    } else if ["lmgg", "tjgg", "algg", "fmgg"].iter().any(|magic| head.starts_with(magic.as_bytes())) {
        "this is a GGML/GGJT file from before GGUF (2023); download the model in GGUF form"
    } else if head.starts_with(b"PK\x03\x04") {
        "this is a ZIP archive (PyTorch checkpoints are, too); unpack it, or download the model in GGUF form"
    } else if head.starts_with(b"\x1f\x8b") || head.starts_with(b"\x28\xb5\x2f\xfd") {
        "this is a compressed file (gzip or zstd); unpack it first"
    } else {
        let found = head[..head.len().min(4)].escape_ascii();
        return Some(format!("not a GGUF file: expected it to start with \"GGUF\", found \"{found}\""));
    };
    Some(format!("not a GGUF file: {known}"))
}

/// The bytes after a byte order mark and blanks.
fn text_start(head: &[u8]) -> &[u8] {
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start()
}

fn is_html(head: &[u8]) -> bool {
    let start = text_start(head).to_ascii_lowercase();
    ["<!doctype", "<html", "<head", "<?xml", "<!--"].iter().any(|tag| start.starts_with(tag.as_bytes()))
}

/// Safetensors: the length of a JSON object in 8 bytes, then the object.
fn is_safetensors(head: &[u8]) -> bool {
    const JSON_BYTES_MAX: u64 = 1 << 32;
    let Some((length, json)) = head.split_first_chunk() else { return false };
    u64::from_le_bytes(*length) < JSON_BYTES_MAX && json.starts_with(b"{")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_saved_under_the_wrong_name_are_recognised() {
        let cases: [(&[u8], &str); 12] = [
            (b"", "empty"),
            (&[0; 64], "zeros"),
            (b"\n  <!DOCTYPE html><html>", "web page"),
            (b"<HTML>", "web page"),
            (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS"),
            (b"\x10\x00\x00\x00\x00\x00\x00\x00{\"__metadata__\"", "safetensors"),
            (b"\xef\xbb\xbf{\"error\":\"Repository not found\"}", "JSON"),
            (b"tjgg\x03\x00\x00\x00", "GGJT"),
            (b"PK\x03\x04", "ZIP"),
            (b"\x1f\x8b\x08", "compressed"),
            (b"abc", "found \"abc\""),
            (b"\x00\x01\xff\"xyz", r#"found "\x00\x01\xff\"""#),
        ];
        for (head, expected) in cases {
            let told = recognise(head).expect("not GGUF");
            assert!(told.contains(expected), "{told}");
        }
        assert_eq!(recognise(b"GGUF\x03\x00\x00\x00"), None);
    }
}
