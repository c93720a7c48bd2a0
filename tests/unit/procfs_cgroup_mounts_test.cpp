#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "procfs/cgroup_mounts.h"
#include "procfs/file.h"
#include "tests/guard_page.h"

namespace kitty::procfs {
namespace {

TEST(ParseMount, Version2) {
  const GuardPage page("41 31 0:38 /../.. /sys/fs/cgroup rw,relatime shared:4 master:2 - cgroup2 cgroup2 rw");
  const auto mount = parse_mount(page.text());
  ASSERT_TRUE(mount);
  EXPECT_TRUE(mount->is_unified);
  EXPECT_FALSE(mount->is_cpu);
  EXPECT_EQ(mount->root, "/../..");
  EXPECT_EQ(mount->point, "/sys/fs/cgroup");
  EXPECT_EQ(mount->device, makedev(0, 38));
}

TEST(ParseMount, Version1ByItsControllers) {
  const auto is_cpu = [](const std::string& options) {
    const auto mount = parse_mount("32 31 0:29 / /sys/fs/cgroup/x rw - cgroup cgroup " + options);
    return mount && mount->is_cpu && !mount->is_unified;
  };
  EXPECT_TRUE(is_cpu("rw,cpu,cpuacct"));
  EXPECT_TRUE(is_cpu("rw,cpuacct,cpu"));
  EXPECT_FALSE(is_cpu("rw,cpuset,cpuacct"));
  EXPECT_FALSE(is_cpu("rw,name=cpu"));
  EXPECT_FALSE(is_cpu(""));
}

TEST(ParseMount, OthersAreMountsOfAnotherKindAndGarbageIsNone) {
  const auto other = parse_mount("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,cpu");
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->is_unified || other->is_cpu);
  EXPECT_EQ(other->point, "/sys/fs/cgroup");
  for (const char* line :
       {"", "31", "31 23", "31 23 0 / /m rw - cgroup2 c rw", "31 23 0:x / /m rw - cgroup2 c rw",
        "31 23 0:28 / m rw - cgroup2 c rw", "31 23 0:28 / /m rw cgroup2 cgroup2 rw",
        "x 23 0:28 / /m rw - cgroup2 c rw", "31 23 4294967296:28 / /m rw - cgroup2 c rw"}) {
    const GuardPage page{std::string_view(line)};
    EXPECT_FALSE(parse_mount(page.text())) << line;
  }
  // A namespace's root that is no path: "net:[4026531840]" of nsfs.
  EXPECT_TRUE(parse_mount("3 1 0:4 net:[4026531840] /run/netns/a rw shared:4 - nsfs nsfs rw"));
}

TEST(ParseMount, CutAtEveryByteIsNeverAnotherKind) {
  const std::string line = "32 31 0:29 /docker/1 /sys/fs/cgroup/cpu rw master:3 - cgroup cgroup rw,cpuacct";
  for (size_t size = 0; size <= line.size(); ++size) {
    const GuardPage page(std::string_view(line).substr(0, size));
    const auto mount = parse_mount(page.text());
    EXPECT_FALSE(mount && mount->is_unified) << size;
  }
}

TEST(Unescape, OctalEscapes) {
  std::array<char, 8> buffer;
  EXPECT_EQ(unescape("/a\\040b", buffer), "/a b");
  EXPECT_EQ(unescape("\\134", buffer), "\\");
  EXPECT_EQ(unescape("", buffer), "");
  EXPECT_EQ(unescape("/a\\04", buffer), std::nullopt);
  EXPECT_EQ(unescape("/a\\049", buffer), std::nullopt);
  EXPECT_EQ(unescape("1234567", buffer), "1234567");
  EXPECT_EQ(unescape("12345678", buffer), std::nullopt);
}

struct Case {
  const char* name;
  std::string root;            // of the mount
  std::string namespace_path;  // below it
  std::string path;            // of the process
  std::optional<std::string> expected;
};

const Case kCases[] = {
    {"OfTheHost", "/", "", "/a/b", "a/b"},
    {"TheRoot", "/", "", "/", ""},
    {"OutsideTheNamespace", "/", "", "/../a", {}},
    {"TheNamespacesParent", "/", "", "/..", {}},
    // Version 1 without a namespace: the container's part is mounted, and paths are the host's.
    {"PartMounted", "/docker/1", "", "/docker/1/x", "x"},
    {"PartMountedItself", "/docker/1", "", "/docker/1", ""},
    {"AnotherPart", "/docker/1", "", "/docker/2", {}},
    {"NameThatBeginsAlike", "/docker/1", "", "/docker/12", {}},
    {"AboveThePart", "/docker/1", "", "/docker", {}},
    // The host's hierarchy in a container that has a namespace of its own.
    {"Unrelated", "/../..", "", "/../../system.slice/x", "system.slice/x"},
    {"TheHostsRoot", "/../..", "", "/../..", ""},
    {"NamesNotKnown", "/../..", "", "/../b", {}},
    {"Sibling", "/../..", "pods/a", "/../b", "pods/b"},
    {"ParentOfTheNamespace", "/../..", "pods/a", "/..", "pods"},
    {"InTheNamespace", "/../..", "pods/a", "/x/y", "pods/a/x/y"},
    {"TheNamespaceItself", "/../..", "pods/a", "/", "pods/a"},
    {"NamesOfAnotherDepth", "/../..", "a", "/../b", {}},
    {"NamesThatLeadUp", "/../..", "../a", "/../b", {}},
    {"HigherThanTheMount", "/..", "a", "/../../b", {}},
    {"MountBesideTheNamespace", "/../b", "", "/../b/c", "c"},
    {"MountBesideAndProcessWithin", "/../b", "a", "/c", {}},
    // What the kernel never writes.
    {"UpInTheMiddle", "/", "", "/a/../../b", {}},
    {"UpAtTheEnd", "/", "", "/a/..", {}},
    {"UpAfterUps", "/..", "", "/../a/../b", {}},
    {"Dot", "/", "", "/./a", {}},
    {"TwoSlashes", "/", "", "/a//b", {}},
    {"SlashAtTheEnd", "/", "", "/a/", {}},
    {"NoSlashFirst", "/", "", "a", {}},
    {"Empty", "/", "", "", {}},
    {"NoMount", "", "", "/a", {}},
    {"Nul", "/", "", std::string("/a\0b", 4), {}},
    {"TwoDotsAndMore", "/", "", "/..a/b..", "..a/b.."},
};

class PathBelowTest : public testing::TestWithParam<Case> {};

std::optional<std::string> joined(const std::optional<BelowMount>& below) {
  if (!below) return std::nullopt;
  std::string text(below->above);
  if (!below->above.empty() && !below->rest.empty()) text += '/';
  return text + std::string(below->rest);
}

TEST_P(PathBelowTest, Resolves) {
  const GuardPage root(GetParam().root), above(GetParam().namespace_path), path(GetParam().path);
  EXPECT_EQ(joined(path_below(root.text(), above.text(), path.text())), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(CgroupMounts, PathBelowTest, testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

TEST(PathBelow, HasBounds) {
  std::string deep;
  for (size_t i = 0; i < kMaxCgroupDepth; ++i) deep += "/a";
  EXPECT_TRUE(path_below("/", "", deep));
  EXPECT_FALSE(path_below("/", "", deep + "/a"));
  EXPECT_TRUE(path_below("/..", "n", deep.substr(2)));
  EXPECT_FALSE(path_below("/..", "n", deep));
  EXPECT_TRUE(path_below("/", "", "/" + std::string(kMaxCgroupPathBytes, 'x')));
  EXPECT_FALSE(path_below("/", "", "/" + std::string(kMaxCgroupPathBytes + 1, 'x')));
}

TEST(LevelsAbove, OfMountsThatBeginAtOrAboveTheNamespace) {
  EXPECT_EQ(levels_above("/"), 0U);
  EXPECT_EQ(levels_above("/.."), 1U);
  EXPECT_EQ(levels_above("/../../.."), 3U);
  EXPECT_EQ(levels_above("/../a"), std::nullopt);
  EXPECT_EQ(levels_above("/a"), std::nullopt);
  EXPECT_EQ(levels_above(""), std::nullopt);
}

TEST(WalkMounts, LinesThatAreTooLongArePassedOver) {
  std::string path = (std::filesystem::temp_directory_path() / "kitty-mounts-XXXXXX").string();
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  const std::filesystem::path folder = path;
  std::filesystem::create_directory(folder / "self");
  std::ofstream(folder / "self/mountinfo") << "1 1 0:1 / /first rw - cgroup2 c rw\n"
                                           << "2 1 0:1 / /" << std::string(300, 'x') << " rw - cgroup2 c rw\n"
                                           << "3 1 0:1 / /third rw - cgroup2 c rw\nrubbish\n"
                                           << "4 1 0:1 / /fourth rw - cgroup2 c rw\n";
  const auto root = open_root(path.c_str());
  ASSERT_TRUE(root);
  std::array<char, 100> buffer;
  std::vector<std::string> points;
  EXPECT_TRUE(
      walk_mounts(root->get(), buffer, [&](const Mount& mount) { points.emplace_back(mount.point); }).ok());
  EXPECT_EQ(points, (std::vector<std::string>{"/first", "/third", "/fourth"}));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kitty::procfs
