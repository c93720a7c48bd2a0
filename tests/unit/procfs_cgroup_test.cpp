#include <gtest/gtest.h>

#include <string>

#include "procfs/cgroup.h"
#include "tests/guard_page.h"

namespace kitty::procfs {
namespace {

const std::string kId = "9ec4d3a0c6d1b9f09c9d7b2f8e51a3a64dc0c9b46d1f8b3b7a0e5f6d2c1b4a39";
const std::string kOuter = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const std::string kUid = "6f1d2c3b-4a59-4e6d-8c7b-90a1b2c3d4e5";
const std::string kUnitUid = "6f1d2c3b_4a59_4e6d_8c7b_90a1b2c3d4e5";
const std::string kStaticUid = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";

struct Case {
  const char* name;
  std::string text;
  std::string container_id;
  std::string pod_uid;
};

const Case kCases[] = {
    {"Empty", "", "", ""},
    {"Root", "0::/\n", "", ""},
    {"Session", "0::/user.slice/user-1000.slice/session-3.scope\n", "", ""},
    {"CgroupfsDriver", "0::/kubepods/burstable/pod" + kUid + "/" + kId + "\n", kId, kUid},
    {"CgroupfsGuaranteed", "0::/kubepods/pod" + kUid + "/" + kId + "\n", kId, kUid},
    {"SystemdContainerd",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + kUnitUid +
         ".slice/cri-containerd-" + kId + ".scope\n",
     kId, kUid},
    {"SystemdGuaranteedCrio",
     "0::/kubepods.slice/kubepods-pod" + kUnitUid + ".slice/crio-" + kId + ".scope\n", kId, kUid},
    {"SystemdNamesInCgroupfs",
     "0::/system.slice/containerd.service/kubepods-besteffort-pod" + kUnitUid +
         ".slice:cri-containerd:" + kId + "\n",
     kId, kUid},
    {"StaticPod", "0::/kubepods/burstable/pod" + kStaticUid + "/" + kId + "\n", kId, kStaticUid},
    {"RelativeFromACgroupNamespace",
     "0::/../../kubepods-besteffort-pod" + kUnitUid + ".slice/cri-containerd-" + kId + ".scope\n", kId, kUid},
    {"Docker", "0::/docker/" + kId + "\n", kId, ""},
    {"DockerSystemd", "0::/system.slice/docker-" + kId + ".scope\n", kId, ""},
    {"Podman", "0::/machine.slice/libpod-" + kId + ".scope/container\n", kId, ""},
    {"Version1",
     "12:pids:/kubepods/burstable/pod" + kUid + "/" + kId + "\n11:memory:/kubepods/burstable/pod" + kUid +
         "/" + kId + "\n",
     kId, kUid},
    {"Version1SomeAtRoot", "9:name=systemd:/\n8:pids:/docker/" + kId + "\n0::/\n", kId, ""},
    {"InnermostOfNested", "0::/docker/" + kOuter + "/kubelet/kubepods/pod" + kUid + "/" + kId + "\n", kId,
     kUid},
    {"WithoutNewline", "0::/docker/" + kId, kId, ""},
    {"IdOneDigitShort", "0::/docker/" + kId.substr(1) + "\n", "", ""},
    {"IdOneDigitLong", "0::/docker/a" + kId + "\n", "", ""},
    {"IdInUpperCase", "0::/docker/" + std::string(64, 'A') + "\n", "", ""},
    {"IdOnlyInControllers", "1:name=" + kId + ":/\n", "", ""},
    {"UidCut", "0::/kubepods/burstable/pod" + kUid.substr(0, 35) + "\n", "", ""},
    {"UidWithMore", "0::/kubepods/burstable/pod" + kUid + "x/\n", "", ""},
    {"NotAPod", "0::/libpod_parent/tripod" + kUid + "\n", "", ""},
    {"NoCgroupLines", "garbage\n\n:\n::\n", "", ""},
};

class CgroupTest : public testing::TestWithParam<Case> {};

TEST_P(CgroupTest, Parses) {
  const GuardPage page(GetParam().text);
  const Cgroup cgroup = parse_cgroup(page.text());
  EXPECT_EQ(cgroup.container_id, GetParam().container_id);
  EXPECT_EQ(cgroup.pod_uid(), GetParam().pod_uid);
}

struct PathCase {
  const char* name;
  std::string text;
  std::string unified;
  std::string cpu;
};

const PathCase kPathCases[] = {
    {"Empty", "", "", ""},
    {"Version2", "0::/a/b.scope\n", "/a/b.scope", ""},
    {"Hybrid", "11:cpuset:/x\n4:cpu,cpuacct:/y\n1:name=systemd:/z\n0::/a\n", "/a", "/y"},
    {"CpuAlone", "2:cpuacct:/x\n1:cpu:/y\n", "", "/y"},
    {"NotEveryNameThatBeginsSo", "2:cpuset,cpuacct:/x\n1:name=cpu:/y\n", "", ""},
    {"ColonsInThePath", "0::/a:b:c\n", "/a:b:c", ""},
    {"OutsideTheNamespace", "0::/../../a\n", "/../../a", ""},
    {"WithoutNewline", "0::/a", "/a", ""},
    {"FirstOfSeveral", "0::/a\n0::/b\n", "/a", ""},
    {"NoPath", "0::\n0:\n0\n:cpu:\n", "", ""},
};

class CgroupPathTest : public testing::TestWithParam<PathCase> {};

TEST_P(CgroupPathTest, Parses) {
  const GuardPage page(GetParam().text);
  const Cgroup cgroup = parse_cgroup(page.text());
  EXPECT_EQ(cgroup.unified_path, GetParam().unified);
  EXPECT_EQ(cgroup.cpu_path, GetParam().cpu);
}

INSTANTIATE_TEST_SUITE_P(Cgroup, CgroupPathTest, testing::ValuesIn(kPathCases),
                         [](const auto& each) { return each.param.name; });

INSTANTIATE_TEST_SUITE_P(Cgroup, CgroupTest, testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kitty::procfs
