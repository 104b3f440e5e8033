//! The kernels over views: what they compute and what they refuse.
use sample_sys::{explain, ffi, select, views, Device, View};
use std::ffi::c_void;

#[test]
fn rows_may_be_strided_and_dims_are_read_from_extents() {
    let (mut a, mut b, mut c) = ([2.0_f32; 40], [3.0_f32; 128], [0.0_f32; 80]);
    let views = (
        View::new(a.as_mut_ptr(), &[5, 8]),
        View::new(b.as_mut_ptr(), &[8, 16]),
        View::new(c.as_mut_ptr(), &[5, 16]),
    );
    let device = Device::cpu().unwrap();
    unsafe { views::matmul(&device, views.0, views.1, views.2, 0.5) }.unwrap();
    assert_eq!(c, [24.0; 80]);
    let short = View::new(b.as_mut_ptr(), &[7, 16]);
    let error = unsafe { views::matmul(&device, views.0, short, views.2, 0.5) }.unwrap_err();
    assert_eq!(error.status, ffi::TILEC_ERR_SHAPE);
    assert!(View::strided(a.as_mut_ptr(), &[5, 8], &[8]).is_err());
}

#[test]
fn the_workspace_is_lent() {
    let device = Device::cpu().unwrap();
    let mut x = [1.0_f32, 3.0, 9.0, 1.0, 3.0, 9.0];
    let mut y = [0.0_f32; 4];
    let rows = View::strided(x.as_mut_ptr(), &[2, 2], &[3, 1]).unwrap();
    let out = View::new(y.as_mut_ptr(), &[2, 2]);
    unsafe { views::normalize(&device, rows, out) }.unwrap(); // in memory of this thread
    let bytes = views::normalize_workspace(&device, 2, 2, 3).unwrap();
    let mut memory = vec![0_u8; bytes + 64];
    let start = memory.as_mut_ptr().wrapping_add(memory.as_ptr().align_offset(64));
    let device = device.with_workspace(start.cast::<c_void>(), bytes - 1);
    let error = unsafe { views::normalize(&device, rows, out) }.unwrap_err();
    assert_eq!(error.status, ffi::TILEC_ERR_WORKSPACE);
    let device = device.with_workspace(start.cast::<c_void>(), bytes);
    unsafe { views::normalize(&device, rows, out) }.unwrap();
    assert_eq!(y, [0.25, 0.75, 0.25, 0.75]);
}

#[test]
fn a_library_without_code_for_gpus_says_so() {
    let none = std::ptr::null_mut();
    for device in [Device::cuda(0, none), Device::hip(0, none), Device::metal(none)].map(Result::unwrap) {
        assert_eq!(device.preload().unwrap_err().status, ffi::TILEC_ERR_NO_ARCH);
    }
}

#[test]
fn choices_are_told_without_a_call() {
    let device = Device::cpu().unwrap();
    let variant = select::matmul(&device, 5, 16, 8).unwrap();
    let said = explain::matmul(&device, 5, 16, 8);
    assert!(said.contains(&format!("{variant:?}: taken")), "{said}");
    assert!(said.lines().all(|line| line.starts_with("variant ")), "{said}");
    assert!(variant.config().starts_with('{'));
    assert_eq!(select::mixed(&device, 3).unwrap_err().status, ffi::TILEC_ERR_NO_VARIANT);
    assert!(explain::mixed(&device, 3).contains("n = 3 is not a multiple of 2"));
    assert!(explain::mixed(&device, -1).contains("-1"));
}

#[test]
fn a_variant_that_was_selected_serves_its_kernel_alone() {
    let device = Device::cpu().unwrap();
    let chosen = device.with_variant(select::matmul(&device, 5, 16, 8).unwrap());
    let (mut a, mut b, mut c) = ([2.0_f32; 40], [3.0_f32; 128], [0.0_f32; 80]);
    let views = (
        View::new(a.as_mut_ptr(), &[5, 8]),
        View::new(b.as_mut_ptr(), &[8, 16]),
        View::new(c.as_mut_ptr(), &[5, 16]),
    );
    unsafe { views::matmul(&chosen, views.0, views.1, views.2, 0.5) }.unwrap();
    assert_eq!(c, [24.0; 80]);
    let mut x = [1.0_f32, 3.0, 1.0, 3.0];
    let mut y = [0.0_f32; 4];
    let (rows, out) = (View::new(x.as_mut_ptr(), &[2, 2]), View::new(y.as_mut_ptr(), &[2, 2]));
    let error = unsafe { views::normalize(&chosen, rows, out) }.unwrap_err();
    assert_eq!(error.status, ffi::TILEC_ERR_ARGUMENT);
}
