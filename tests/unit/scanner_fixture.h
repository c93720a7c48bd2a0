// A scanner of this machine's processes.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "base/fd.h"
#include "collector/scanner.h"
#include "procfs/file.h"

namespace kitty::testing {

class ScannerFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    auto root = procfs::open_root("/proc");
    ASSERT_TRUE(root) << root.error().message();
    root_ = std::move(*root);
    scanner_ = std::make_unique<collector::Scanner>(root_.get(), nullptr);
  }

  Fd root_;
  std::unique_ptr<collector::Scanner> scanner_;
};

}  // namespace kitty::testing
