# The plots of the report, from the files in the current directory: gnuplot -e "plot_name = 'lag'" plots.gp
set terminal svg size 900,450 dynamic background rgb 'white' font 'sans-serif,13'
set output plot_name.'.svg'
set datafile separator ','
set grid
set key outside right
name(c) = c eq 'bare' ? 'INSERT, no count' : c eq 'fk' ? '… with a foreign key' : c eq 'naive' ? 'INSERT, UPDATE' : c eq 'trigger' ? '… by a trigger' \
	: c eq 'slotted' ? 'eight random rows' : c eq 'likecount_orm' ? 'likecount, INSERT' : c eq 'likecount_direct' ? 'likecount, direct' : c

if (plot_name eq 'throughput') {
	set title 'Likes of one hot post'
	set xlabel 'clients'
	set ylabel 'likes/s'
	set logscale x 2
	set logscale y
	set xtics (1, 8, 16, 64)
	set xrange [0.8:80]
	rows(contender) = "< grep '^hot,[0-9]*,".contender.",' medians.csv"
	contenders = system("sed -n 's/^hot,[0-9]*,\\([^,]*\\),.*/\\1/p' medians.csv | uniq")
	plot for [c in contenders] rows(c) using 2:4:5:6 with yerrorlines lw (c eq 'likecount' ? 3 : 1) title name(c) noenhanced
}

if (plot_name eq 'hot-spread') {
	set title '64 clients: one hot post, and many posts'
	set ylabel 'likes/s'
	set yrange [0:*]
	set style data histograms
	set style fill solid 0.8
	set xtics noenhanced rotate by -20
	loads = '"one hot post" "100,000 posts, zipf" "1,000,000 posts"'
	plot for [i = 2:4] 'hot-spread.csv' every ::1 using i:xtic(name(strcol(1))) title word(loads, i - 1)
}

if (plot_name eq 'lag') {
	set title 'From commit to count, 64 clients on one post'
	set xlabel 'seconds'
	set ylabel 'ms'
	set yrange [0:*]
	plot "< grep '^lag,' lag.csv" using 2:3 with points pt 7 ps 0.4 title 'a like', 1000 with lines title 'flush\_interval'
}

if (plot_name eq 'held') {
	set multiplot layout 2, 1
	rows(server) = "< grep '^held,[0-9]*,".server.",' queue.csv"
	label(server) = server eq 'free' ? 'no old snapshot' : 'an old snapshot'
	set xlabel 'minutes'
	set yrange [0:*]
	set title 'Last flush, ms'
	plot for [s in 'free held'] rows(s) using ($2 / 60):4 with lines title label(s)
	set title 'Queue and journal on disk, MB'
	plot for [s in 'free held'] rows(s) using ($2 / 60):($6 / 1048576) with lines title label(s)
	unset multiplot
}
