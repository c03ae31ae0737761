"""What pyproject.toml cannot say: a wheel holds `configs/` inside of pujax and not beside it."""

import setuptools
from setuptools.command import build_py


class BuildWithConfigs(build_py.build_py):
    """Puts `configs/` beside `pujax/configs/__init__.py`; editable installs leave it in place."""

    def finalize_options(self):
        """Adds the folder of the plans of sweeps as a package."""
        super().finalize_options()
        self.packages = [*self.packages, "pujax.configs.sweeps"]
        self.package_dir["pujax.configs.sweeps"] = "configs/sweeps"

    def find_package_modules(self, package, package_dir):
        """The Python files of a package, those of `configs/` too where it is that of pujax."""
        modules = super().find_package_modules(package, package_dir)
        if package == "pujax.configs":
            modules += super().find_package_modules(package, "configs")
        return modules


setuptools.setup(cmdclass={"build_py": BuildWithConfigs})
