# The documentation is right: examples print what it says, links lead somewhere, everything public is described.
#
# In each file below, the blocks marked sql run in one psql session, in a new database with nothing in it; a block marked
# text right after one is what psql prints for it.  A comment <!-- not run: why --> before a block leaves it out.
use strict;
use warnings;
use File::Basename;
use IPC::Run qw(run);
use LikecountTest;

my $root = dirname(__FILE__) . '/../..';

# The worker's work is done when an example says flush().
my $node = new_node('docs', conf => "likecount.worker = off\n");

# blocks($file) returns [line number, sql, expected output or undef] of each example.
sub blocks
{
	my ($file) = @_;
	my @blocks;
	my ($mark, $line, $body, $skip, $adjacent) = ('', 0, '', 0, 0);

	for my $text (split /\n/, slurp_file("$root/$file"))
	{
		$line++;
		if ($mark eq '')
		{
			if ($text =~ /^```(\w*)$/)
			{
				($mark, $body) = ($1 || 'plain', '');
				push @blocks, [ $line, '', undef ] if $mark eq 'sql' && !$skip;
			}
			elsif ($text ne '')
			{
				$skip = $text =~ /^<!-- not run: /;
				$adjacent = 0;
			}
		}
		elsif ($text eq '```')
		{
			$blocks[-1][1] = $body if $mark eq 'sql' && !$skip;
			$blocks[-1][2] = $body if $mark eq 'text' && $adjacent;
			$adjacent = $mark eq 'sql' && !$skip;
			($mark, $skip) = ('', 0);
		}
		else
		{
			$body .= "$text\n";
		}
	}
	return @blocks;
}

my @examples = qw(README.md docs/operations.md docs/modes.md);
my @files = (@examples, qw(CHANGELOG.md CONTRIBUTING.md docs/architecture.md docs/internals.md docs/reference.md docs/settings.md));

for my $file (@examples)
{
	my @blocks = blocks($file);
	my ($out, $err);

	(my $database = lc $file) =~ s/\W/_/g;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	run [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database) ],
	  '<', \join('', "SET client_min_messages = warning;\n", map { "$_->[1]\\echo == end\n" } @blocks),
	  '>', \$out, '2>', \$err;

	my @printed = split /^== end\n/m, $out, -1;
	for my $i (0 .. $#blocks)
	{
		my ($line, $sql, $expected) = @{ $blocks[$i] };

		if ($i >= $#printed)
		{
			fail("$file:$line runs");
			diag $err;
			last;
		}
		# psql puts an empty line after each table and blanks at the ends of lines
		s/[ \n]+$//mg, s/\n+$// for grep { defined } $printed[$i], $expected;
		if (defined $expected)
		{
			is($printed[$i], $expected, "$file:$line prints what it says");
		}
		else
		{
			pass("$file:$line runs");
		}
	}
}

# A heading's anchor, as GitHub makes it.
sub anchors
{
	my ($file) = @_;
	my %anchors;

	for my $heading (slurp_file("$root/$file") =~ /^#+ (.*)$/mg)
	{
		(my $anchor = lc $heading) =~ s/[^\w\- ]//g;
		$anchor =~ tr/ /-/;
		$anchors{$anchor} = 1;
	}
	return \%anchors;
}

for my $file (@files)
{
	my @broken;

	for my $link (slurp_file("$root/$file") =~ /\]\(([^)\s]+)\)/g)
	{
		next if $link =~ /^https?:/;
		my ($path, $anchor) = split /#/, $link, 2;
		my $target = $path eq '' ? $file : join('/', grep { $_ ne '.' } dirname($file), $path);

		1 while $target =~ s{[^/]+/\.\./}{};
		push @broken, $link
		  if !-e "$root/$target" || (defined $anchor && !anchors($target)->{$anchor});
	}
	is(join(' ', @broken), '', "links of $file");
}

# Everything public is in the reference, and the README's tables point there.
my $readme = slurp_file("$root/README.md");
my $reference = anchors('docs/reference.md');
my @public = split /\n/, $node->safe_psql('readme_md', q{
		SELECT DISTINCT p.proname FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
		WHERE d.deptype = 'e' AND p.pronamespace = 'likecount'::regnamespace AND p.proname !~ '^_'
		UNION SELECT relname FROM pg_class
		WHERE relnamespace = 'likecount'::regnamespace AND relkind = 'v' AND relname !~ '^_|_(rows|totals)$'});
for my $name (@public, qw(like unlike liked like_many like_count like_counts liked_posts like_totals))
{
	ok($reference->{$name}, "docs/reference.md has $name");
	like($readme, qr{\(docs/reference\.md#$name\)}, "README.md links $name");
}

my $settings = anchors('docs/settings.md');
for my $name (split /\n/, $node->safe_psql('readme_md', q{SELECT name FROM pg_settings WHERE name ~ '^likecount\.'}))
{
	(my $anchor = $name) =~ s/\.//;
	ok($settings->{$anchor}, "docs/settings.md has $name");
}

done_testing();
