# Removes from a root of Debian's packages what they bring for each other and nothing calls. Scanners find the list of packages
# where distroless images have it. mmdebstrap runs this, with the root as $1.
cd "$1"
mkdir -p var/lib/dpkg/status.d
for archive in var/cache/apt/archives/*.deb; do
  package=$(dpkg-deb --field "$archive" Package)
  case $package in dpkg|mawk|tar) ;; *) dpkg-deb --field "$archive" > "var/lib/dpkg/status.d/$package";; esac
done
find bin sbin usr/bin usr/sbin ! -type d ! -name 'python3*' -delete
find usr/share -mindepth 1 -maxdepth 1 ! -name doc ! -name common-licenses -exec rm -r '{}' +
rm -r etc/cron* etc/logrotate.d etc/update-motd.d lib/systemd usr/games usr/include usr/libexec usr/lib/*/gconv
