//! A crate that depends on the library's is told the folder of the library.
fn main() {
    let folder = std::env::var("DEP_SAMPLE_LIB_DIR").expect("sample-sys tells it");
    assert!(std::path::Path::new(&folder).join("libsample.so").exists(), "{folder}");
}
