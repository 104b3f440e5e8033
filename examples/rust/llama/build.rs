//! Has the program find the kernels where they were built.
fn main() {
    let folder = std::env::var("DEP_LLAMA_KERNELS_LIB_DIR").expect("llama_kernels-sys names the folder of its library");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
}
