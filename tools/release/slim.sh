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
# Libraries of the programs and modules that are gone, of databases and terminals: 9 MB. Of Python its own tests, and the encodings
# of East Asia: nothing calls them. Its prompt (_pyrepl) stays, because pydoc imports it.
for library in BrokenLocale acl c_malloc_debug db-5 formw history md memusage menuw mvec ncursesw nsl panelw pcprofile pcre2-8 readline \
    selinux sqlite3 thread_db tic tinfo; do
  find usr/lib/*-linux-gnu -name "lib$library[.-]*" -delete
done
for module in _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _curses _curses_panel _dbm _gdbm _sqlite3 _test '_test*' _xxtestfuzz readline 'xx*'; do
  find usr/lib/python3.*/lib-dynload -name "$module.cpython-*" -delete
done
for module in dbm ensurepip idlelib lib2to3 pydoc_data sqlite3 test tkinter turtle.py turtledemo xmlrpc; do
  rm -rf usr/lib/python3.*/$module
done
